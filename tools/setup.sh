# Sourced by tools/demo and tools/test. need_packages PACKAGE... installs the Debian packages that are missing, or
# names them if the caller is not root.

need_packages() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if [ "$(id -u)" -ne 0 ]; then
        echo "setup: packages are missing; run as root: apt-get install ${missing[*]}" >&2
        return 1
    fi
    echo "Installing: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q >/dev/null && apt-get install -qy --no-install-recommends "${missing[@]}" >/dev/null
}

build_packages=(gcc libc6-dev meson ninja-build pkg-config libltdl-dev libjansson-dev zlib1g-dev uthash-dev)
test_packages=(g++ clang libclang-rt-14-dev libcriterion-dev gcovr python3 abigail-tools ocl-icd-opencl-dev opencl-headers
    pocl-opencl-icd)
