/* SPDX-License-Identifier: MIT */
/* The entry of a provider is pure: it makes no system call (no device, thread or file), allocates nothing,
 * and returns the same table each time. Arguments: the providers. */
#include <dlfcn.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <moorage/abi/provider.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static moor_abi_entry find_entry(const char *path)
{
    moor_abi_entry entry = NULL;
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = object == NULL ? NULL : dlsym(object, MOOR_ABI_ENTRY_NAME);
    if (symbol == NULL)
        printf("# %s\n", dlerror());
    memcpy(&entry, &symbol, sizeof entry);
    return entry;
}

/* Runs in a child. Seccomp allows read, write and exit; any other system call kills the child. */
static void call_entry(moor_abi_entry entry)
{
    size_t before = mallinfo2().uordblks;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
        (void)syscall(SYS_exit, 77);
    const struct moor_abi_provider *first = entry();
    bool is_pure = first != NULL && entry() == first && mallinfo2().uordblks == before;
    (void)syscall(SYS_exit, is_pure ? 0 : 1);
}

/* Returns the exit status of the child; -1 if a signal killed it. */
static int try_entry(moor_abi_entry entry)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        call_entry(entry);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char **argv)
{
    bool all = true;
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* a child must not inherit unwritten output */
    printf("1..%d\n", argc - 1);
    for (int i = 1; i < argc; i++) {
        moor_abi_entry entry = find_entry(argv[i]);
        int outcome = entry == NULL ? -1 : try_entry(entry);
        bool passed = outcome == 0 || outcome == 77;
        all &= passed;
        printf("%s %d - %s: the entry is pure%s\n", passed ? "ok" : "not ok", i, argv[i],
               outcome == 77 ? " # SKIP this kernel has no seccomp" : "");
    }
    return all ? 0 : 1;
}
