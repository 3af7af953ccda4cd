# Sourced by tools/demo and tools/test: finds or installs the needed packages, by their Debian names.
# Usage: need_packages PACKAGE...

need_packages() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if [ "$(id -u)" -ne 0 ]; then
        echo "packages: missing: as root run: apt-get install ${missing[*]}" >&2
        return 1
    fi
    echo "Installing: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q >/dev/null && apt-get install -qy --no-install-recommends "${missing[@]}" >/dev/null
}

build_packages=(gcc libc6-dev meson ninja-build pkg-config libltdl-dev libjansson-dev zlib1g-dev uthash-dev)
test_packages=(g++ clang libclang-rt-14-dev libcriterion-dev gcovr python3 abigail-tools ocl-icd-opencl-dev opencl-headers
    pocl-opencl-icd)
