/* SPDX-License-Identifier: MIT */
/* Takes privileges and system calls away from a test. */
#ifndef MOOR_TESTS_LOADER_PRIVILEGE_H
#define MOOR_TESTS_LOADER_PRIVILEGE_H

#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOBODY 65534 /* a user other than root and the caller */

/* Makes file modes bind root too: drops the capabilities that bypass them, for the calling thread and for the
 * threads and programs that it starts. Unlike a change of user, this leaves root its own directories, so the
 * build folder may lie below one of mode 0700. Returns false if root may not drop capabilities here. */
static inline bool obey_file_modes(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
    if (geteuid() != 0)
        return true;
    if (prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE) != 0 || prctl(PR_CAPBSET_DROP, CAP_DAC_READ_SEARCH) != 0 ||
        syscall(SYS_capget, &header, sets) != 0)
        return false;
    sets[0].permitted &= ~(1U << CAP_DAC_OVERRIDE | 1U << CAP_DAC_READ_SEARCH);
    sets[0].effective &= sets[0].permitted;
    return syscall(SYS_capset, &header, sets) == 0;
}

/* Makes a system call fail with an errno value, from now on. Returns false if this kernel has no seccomp. */
static inline bool forbid_call(long number, unsigned error)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof rules[0], rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

#endif
