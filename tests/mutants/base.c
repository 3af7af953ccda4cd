/* SPDX-License-Identifier: MIT */
/* Mutations of BASE: wrong facts about devices, and traces left in the process. */
#include "mutant.h"

#include <fcntl.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- traces left in the process ---- */

static void *sleep_for_ever(void *user)
{
    for (;;)
        (void)pause();
    return user;
}

static void hang(void)
{
    (void)sleep_for_ever(NULL);
}

static void leave_things(void)
{
    pthread_t thread;
    if (mutant("base.leaves_thread"))
        (void)pthread_create(&thread, NULL, sleep_for_ever, NULL);
    if (mutant("base.leaves_file"))
        (void)open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (mutant("base.leaves_map"))
        (void)mmap(NULL, 1 << 16, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (mutant("base.leaves_memory")) {
        char *volatile memory = calloc(1, 1 << 20); /* volatile, so that the compiler keeps the allocation */
        for (size_t i = 0; memory && i < 1 << 20; i += 4096)
            memory[i] = 1;
    }
    if (mutant("base.leaves_little")) {
        char *volatile memory = malloc(400); /* volatile, as above */
        (void)memory;
    }
    if (mutant("base.takes_signal"))
        (void)signal(SIGUSR2, SIG_IGN);
    if (mutant("base.hangs_forked_child"))
        (void)pthread_atfork(NULL, NULL, hang);
    if (mutant("base.hangs_exit"))
        (void)atexit(hang);
}

void mutant_change_state(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    if (mutant("call.changes_signal_mask"))
        (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (mutant("call.changes_handlers"))
        (void)signal(SIGUSR2, SIG_IGN);
    if (mutant("call.changes_directory"))
        (void)!chdir("/proc");
    if (mutant("call.changes_umask"))
        (void)umask(0777);
    if (mutant("call.changes_rounding"))
        (void)fesetround(FE_DOWNWARD);
    if (mutant("call.changes_environment"))
        (void)setenv("MUTANT", "1", 1);
}

/* ---- init and shutdown ---- */

static struct moor_abi_instance *only; /* for base.one_instance: the instance that is open */
static unsigned int only_count;
static atomic_uint init_count;

static int32_t init(const struct moor_abi_host *host, uint32_t negotiated_minor,
                    struct moor_abi_instance **ret_instance, struct moor_abi_error *error)
{
    mutant_choose(host);
    atomic_fetch_add(&init_count, 1);
    leave_things();
    if (mutant("base.one_instance") && only_count > 0) {
        only_count++;
        *ret_instance = only;
        return MOOR_OK;
    }
    if (mutant("base.refuses_1_0"))
        return MOOR_VERSION;
    int32_t status = sound()->base->init(host, negotiated_minor, ret_instance, error);
    if (status == MOOR_OK && mutant("base.one_instance")) {
        only = *ret_instance;
        only_count = 1;
    }
    return status;
}

static int32_t shutdown(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    if (mutant("base.one_instance") && --only_count > 0)
        return MOOR_OK;
    return sound()->base->shutdown(instance, error);
}

/* ---- devices and domains ---- */

static int32_t device_count(struct moor_abi_instance *instance, uint32_t *ret_count,
                            struct moor_abi_error *error)
{
    static atomic_uint calls;
    int32_t status = sound()->base->device_count(instance, ret_count, error);
    if (mutant("base.count_changes"))
        *ret_count += atomic_fetch_add(&calls, 1) % 2;
    if (mutant("base.writes_error"))
        error->text[0] = '?';
    return status;
}

static int32_t device_info(struct moor_abi_instance *instance, uint32_t device,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    if (mutant("device_info.any_device"))
        device = 0;
    int32_t status = sound()->base->device_info(instance, device, ret_info, error);
    mutant_out(ret_info, MOOR_ABI_DEVICE_INFO_SIZE, status, "device_info");
    if (status != MOOR_OK)
        return status;
    if (mutant("device_info.key_changes"))
        (void)snprintf(ret_info->key, sizeof ret_info->key, "key-%u", atomic_load(&init_count));
    if (mutant("device_info.key_empty"))
        ret_info->key[0] = '\0';
    if (mutant("device_info.domains_17"))
        ret_info->domain_count = 17;
    return MOOR_OK;
}

static int32_t domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    static atomic_uint calls;
    if (mutant("domain_info.any_domain"))
        domain %= 2;
    int32_t status = sound()->base->domain_info(instance, device, domain, ret_info, error);
    mutant_out(ret_info, MOOR_ABI_DOMAIN_INFO_SIZE, status, "domain_info");
    if (status != MOOR_OK)
        return status;
    if (mutant("domain_info.granule_odd") && ret_info->granule_min_bytes)
        ret_info->granule_min_bytes = 3 << 16;
    if (mutant("domain_info.capability_unknown"))
        ret_info->capabilities |= UINT64_C(1) << 40;
    if (mutant("domain_info.flag_unknown"))
        ret_info->flags |= UINT64_C(1) << 40;
    if (mutant("domain_info.kinds_equal"))
        ret_info->kind = MOOR_ABI_DOMAIN_DEVICE;
    if (mutant("domain_info.pool_key_empty"))
        ret_info->pool_key[0] = '\0';
    if (mutant("domain_info.total_changes"))
        ret_info->total_bytes -= atomic_fetch_add(&calls, 1) * 4096;
    return MOOR_OK;
}

/* ---- contexts ---- */

static atomic_uint open_count;

static int32_t context_open(struct moor_abi_instance *instance, uint32_t device,
                            struct moor_abi_context **ret_context, struct moor_abi_error *error)
{
    if (mutant("base.opens_once") && atomic_load(&open_count) > 0)
        return MOOR_BUSY;
    int32_t status = sound()->base->context_open(instance, device, ret_context, error);
    if (status == MOOR_OK)
        atomic_fetch_add(&open_count, 1);
    return status;
}

static int32_t context_close(struct moor_abi_context *context, struct moor_abi_error *error)
{
    int32_t status = sound()->base->context_close(context, error);
    if (status == MOOR_OK)
        atomic_fetch_sub(&open_count, 1);
    return status;
}

static int32_t context_native(struct moor_abi_context *context, uint64_t *ret_native,
                              struct moor_abi_error *error)
{
    return mutant("base.native_nothing") ? MOOR_OK
                                         : sound()->base->context_native(context, ret_native, error);
}

static int32_t get_extension(struct moor_abi_instance *instance, const char *name, uint32_t version,
                             const void **ret_table, struct moor_abi_error *error)
{
    if (mutant("base.extension_nothing"))
        return MOOR_OK;
    return sound()->base->get_extension(instance, name, version, ret_table, error);
}

MOOR_KIT_TABLE(base, mutant_base, .init = init, .shutdown = shutdown, .device_count = device_count,
               .device_info = device_info, .domain_info = domain_info, .context_open = context_open,
               .context_close = context_close, .context_native = context_native,
               .get_extension = get_extension);
