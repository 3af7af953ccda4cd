#!/usr/bin/env python3
"""The host example of README.md, built and run against the build tree: each of its calls must succeed, and afterwards
everything can be taken down again."""
import pathlib
import re
import subprocess
import sys
import tempfile

root, library, provider = (pathlib.Path(name).resolve() for name in sys.argv[1:4])
cflags = sys.argv[4:]
sys.path.insert(0, str(root / "tests/support"))
import tap  # noqa: E402

HEAD = """
#include <moorage/moorage.h>
#include <stdio.h>
static int step(moor_status status, const char *what) {
    if (status) fprintf(stderr, "%s: %s: %s\\n", what, moor_status_name(status), moor_last_error()->text);
    return status != 0;
}
int main(int argc, char **argv) {
    (void)argc;
    const char *path = argv[1];
    struct moor_runtime *runtime; struct moor_provider *provider; struct moor_device *device;
    struct moor_authority *pool; struct moor_holder *holder; struct moor_binding *binding;
    struct moor_stream *stream; moor_buffer buffer; struct moor_view view;
"""
TAIL = """
    struct moor_authority_stats stats;
    if (step(moor_stream_destroy(stream), "destroy") || step(moor_runtime_reap(runtime, MOOR_FOREVER), "reap")
        || step(moor_authority_get_stats(pool, &stats, NULL, 0, NULL), "stats")
        || step(moor_binding_close(binding), "close") || step(moor_holder_destroy(holder), "holder")
        || step(moor_runtime_destroy(runtime), "runtime")) return 1;
    return stats.charged_bytes != 0 || stats.peak_charged_bytes != 1 << 20;
}
"""
text = (root / "README.md").read_text()
body = re.search(r"<!-- example.*?```c\n(.*?)```", text, re.S).group(1)
calls = re.findall(r"^(moor_\w+\(.*\));.*$", body, re.M)
tap.check("the example has twelve lines, each a call", len(calls) == 12 and len(body.strip().splitlines()) == 12)
checked = "".join(f'    if (step({call}, "line {i + 1}")) return 1;\n' for i, call in enumerate(calls))
with tempfile.TemporaryDirectory() as folder:
    source, program = pathlib.Path(folder, "example.c"), pathlib.Path(folder, "example")
    source.write_text(HEAD + checked + TAIL)
    build = subprocess.run(["cc", "-std=c17", "-Wall", "-Wextra", "-Werror", *cflags, f"-I{root}/core/include",
                            f"-I{root}/abi/include", str(source), f"-L{library.parent}", "-lmoorage",
                            f"-Wl,-rpath,{library.parent}", "-o", str(program)], capture_output=True, text=True)
    tap.check("it compiles", build.returncode == 0, build.stderr.strip().replace("\n", " | "))
    if build.returncode == 0:
        run = subprocess.run([str(program), provider], capture_output=True, text=True)
        tap.check("it runs, and everything can be taken down", run.returncode == 0, run.stderr.strip())
tap.finish()
