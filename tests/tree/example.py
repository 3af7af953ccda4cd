#!/usr/bin/env python3
"""Builds and runs the host examples of README.md. Each of their calls must succeed, and so must the clean-up."""
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
static int step(moor_status status, const char *call) {
    if (status) fprintf(stderr, "%s: %s: %s\\n", call, moor_status_name(status), moor_last_error()->text);
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
# The second example. Between its lines the holders get their bindings, and the cache fills up.
PRESSURE_HEAD = """
#define PIECES 6
struct cache { struct moor_runtime *runtime; struct moor_binding *binding; moor_buffer pieces[PIECES]; } held;
static uint64_t evict(void *user, const struct moor_pressure *pressure) {
    uint64_t evicted = 0;
    (void)user;
    for (int i = 0; i < PIECES && evicted < pressure->bytes; i++)
        if (held.pieces[i] && moor_buffer_release(held.runtime, held.pieces[i]) == MOOR_OK) {
            held.pieces[i] = 0;
            evicted += 8 << 20;
        }
    return evicted;
}
"""
PRESSURE_VARIABLES = """
    struct moor_holder *cache, *kv; struct moor_binding *kv_binding; moor_grant grant; moor_buffer kv_buffer;
    uint64_t over;
    if (step(moor_runtime_create(NULL, &runtime), "runtime")
        || step(moor_provider_load(runtime, path, NULL, &provider), "load")
        || step(moor_provider_get_device(provider, 0, &device), "device")
        || step(moor_device_get_authority(device, 0, &pool), "authority")
        || step(moor_authority_set_capacity(pool, 64 << 20, 0, NULL), "capacity")) return 1;
    held.runtime = runtime; holder = NULL; binding = NULL; stream = NULL; buffer = 0; view.owner = 0;
    (void)holder; (void)binding; (void)stream; (void)buffer; (void)view;
"""
PRESSURE_FILL = """
    if (step(moor_binding_open(device, 0, cache, &held.binding), "open")
        || step(moor_binding_open(device, 0, kv, &kv_binding), "open")) return 1;
    for (int i = 0; i < PIECES; i++)
        if (step(moor_buffer_allocate(held.binding, 8 << 20, NULL, &held.pieces[i]), "fill")) return 1;
"""
# After its first line no pressure function runs, so the pieces are this thread's alone.
PRESSURE_TAIL = """
    struct moor_holder_stats stats;
    if (step(moor_holder_set_pressure(cache, NULL, NULL), "pressure")
        || step(moor_holder_get_stats(cache, &stats), "stats")) return 1;
    if (stats.evicted_bytes < 24 << 20) return 2;
    for (int i = 0; i < PIECES; i++) if (step(moor_buffer_release(runtime, held.pieces[i]), "release")) return 1;
    if (step(moor_buffer_release(runtime, kv_buffer), "release") || step(moor_runtime_reap(runtime, MOOR_FOREVER), "reap")
        || step(moor_binding_close(held.binding), "close") || step(moor_binding_close(kv_binding), "close")
        || step(moor_holder_destroy(cache), "holder") || step(moor_holder_destroy(kv), "holder")
        || step(moor_runtime_destroy(runtime), "runtime")) return 1;
    return over > 24 << 20;
}
"""


def calls_of(body):
    return re.findall(r"^(moor_\w+\(.*\));.*$", body, re.M)


def try_out(name, program_text):
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder, "example.c"), pathlib.Path(folder, "example")
        source.write_text(program_text)
        build = subprocess.run(["cc", "-std=c17", "-Wall", "-Wextra", "-Werror", *cflags, f"-I{root}/core/include",
                                f"-I{root}/abi/include", str(source), f"-L{library.parent}", "-lmoorage",
                                f"-Wl,-rpath,{library.parent}", "-o", str(program)], capture_output=True, text=True)
        tap.check(f"{name} compiles", build.returncode == 0, build.stderr.strip().replace("\n", " | "))
        if build.returncode == 0:
            run = subprocess.run([str(program), provider], capture_output=True, text=True)
            tap.check(f"{name} runs, and its clean-up succeeds", run.returncode == 0, run.stderr.strip())


def checked(calls):
    return "".join(f'    if (step({call}, "line {i + 1}")) return 1;\n' for i, call in enumerate(calls))


text = (root / "README.md").read_text()
first, second = re.findall(r"<!-- example.*?```c\n(.*?)```", text, re.S)
calls = calls_of(first)
tap.check("the first example has twelve lines, each a call", len(calls) == 12 and len(first.strip().splitlines()) == 12)
try_out("the first example", HEAD + checked(calls) + TAIL)
calls = calls_of(second)
tap.check("the example of holders has six calls", len(calls) == 6)
try_out("the example of holders", HEAD.replace("int main(", PRESSURE_HEAD + "int main(") + PRESSURE_VARIABLES +
        checked(calls[:2]) + PRESSURE_FILL + checked(calls[2:]) + PRESSURE_TAIL)
tap.finish()
