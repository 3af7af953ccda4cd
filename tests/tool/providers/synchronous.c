/* SPDX-License-Identifier: MIT */
/*
 * The CPU provider as a synchronous device: host functions run inside the submitting call, and the host
 * cannot reach the memory by address.
 */
#include <dlfcn.h>
#include <moorage/abi/provider.h>
#include <stddef.h>

MOOR_ABI_NOTE(MOOR_ABI_CAPS_1_0, 0);

static const struct moor_abi_provider *cpu;

static int32_t domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    int32_t status = cpu->base->domain_info(instance, device, domain, ret_info, error);
    if (status == MOOR_OK)
        ret_info->flags &= ~MOOR_ABI_DOMAIN_HOST_ACCESS;
    return status;
}

static int32_t host_function(struct moor_abi_stream *stream, moor_abi_host_function function, void *user,
                             struct moor_abi_error *error)
{
    (void)stream, (void)error;
    function(user);
    return MOOR_OK;
}

MOOR_ABI_EXPORT const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    static struct moor_abi_provider provider;
    static struct moor_abi_base_table base;
    static struct moor_abi_stream_table stream;
    void *module = dlopen(CPU_PROVIDER, RTLD_NOW | RTLD_LOCAL);
    moor_abi_entry entry = NULL;
    if (module != NULL)
        /* POSIX lets an object pointer carry a function */
        *(void **)&entry = dlsym(module, "moor_provider_entry_v1");
    if (entry == NULL)
        return NULL;
    cpu = entry();
    base = *cpu->base;
    base.domain_info = domain_info;
    stream = *cpu->stream;
    stream.host_function = host_function;
    provider = *cpu;
    provider.base = &base;
    provider.stream = &stream;
    return &provider;
}
