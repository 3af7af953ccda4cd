/* SPDX-License-Identifier: MIT */
/*
 * The entry and BASE.
 *
 * The entry is pure, so its table cannot depend on a provider that is not loaded yet: it has every capability
 * of 1.0. Devices and domains are those of the inner provider, with their true capabilities; a function that
 * the inner provider lacks returns UNSUPPORTED.
 */
#include "fault.h"

#include <stdlib.h>
#include <string.h>

/* ---- init and shutdown ---- */

static int32_t init_inner(struct moor_abi_instance *instance, uint32_t negotiated_minor,
                          struct moor_abi_error *error)
{
    int32_t status = fault_enter(instance, FAULT_INIT, NULL, error);
    uint32_t theirs = instance->tables.prefix.minor;
    return status ? status
                  : instance->tables.base.init(instance->host,
                                               theirs < negotiated_minor ? theirs : negotiated_minor,
                                               &instance->inner, error);
}

static int32_t init(const struct moor_abi_host *host, uint32_t negotiated_minor,
                    struct moor_abi_instance **ret_instance, struct moor_abi_error *error)
{
    const char *path = host->config(host->user, "provider");
    if (!path)
        return moor_kit_fail(error, MOOR_INVALID, 0,
                             "setting provider: missing: the absolute path of the inner provider is needed");
    struct moor_abi_instance *instance = calloc(1, sizeof *instance);
    if (!instance)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "instance: no host memory");
    instance->host = host;
    int32_t status = fault_inner_load(path, &instance->tables, error);
    if (status)
        goto no_plan;
    status = fault_plan_init(&instance->fault, host->config(host->user, "faults"), error);
    if (status)
        goto no_plan;
    status = init_inner(instance, negotiated_minor, error);
    if (status)
        goto no_inner;
    *ret_instance = instance;
    return MOOR_OK;
no_inner:
    fault_plan_finish(&instance->fault);
no_plan:
    free(instance);
    return status;
}

/* The end of an object is forwarded even if it is made to fail: no host could end the object again. */

static int32_t shutdown(struct moor_abi_instance *instance, struct moor_abi_error *error)
{
    int32_t failure = fault_enter(instance, FAULT_SHUTDOWN, NULL, error);
    int32_t status = instance->tables.base.shutdown(instance->inner, error);
    if (status || failure)
        return status ? status : failure; /* after a failure the memory stays */
    fault_plan_finish(&instance->fault);
    free(instance);
    return MOOR_OK;
}

/* ---- devices and domains ---- */

static int32_t device_count(struct moor_abi_instance *instance, uint32_t *ret_count,
                            struct moor_abi_error *error)
{
    int32_t status = fault_enter(instance, FAULT_DEVICE_COUNT, NULL, error);
    return status ? status : instance->tables.base.device_count(instance->inner, ret_count, error);
}

static int32_t device_info(struct moor_abi_instance *instance, uint32_t device,
                           struct moor_abi_device_info *ret_info, struct moor_abi_error *error)
{
    int32_t status = fault_enter(instance, FAULT_DEVICE_INFO, NULL, error);
    return status ? status : instance->tables.base.device_info(instance->inner, device, ret_info, error);
}

static int32_t domain_info(struct moor_abi_instance *instance, uint32_t device, uint32_t domain,
                           struct moor_abi_domain_info *ret_info, struct moor_abi_error *error)
{
    int32_t status = fault_enter(instance, FAULT_DOMAIN_INFO, NULL, error);
    return status ? status
                  : instance->tables.base.domain_info(instance->inner, device, domain, ret_info, error);
}

/* ---- contexts ---- */

static int32_t context_open(struct moor_abi_instance *instance, uint32_t device,
                            struct moor_abi_context **ret_context, struct moor_abi_error *error)
{
    int32_t after;
    int32_t status = fault_enter(instance, FAULT_CONTEXT_OPEN, &after, error);
    if (status)
        return status;
    struct moor_abi_context *context = calloc(1, sizeof *context);
    if (!context)
        return moor_kit_fail(error, MOOR_HOST_NOMEM, 0, "context: no host memory");
    context->instance = instance;
    status = instance->tables.base.context_open(instance->inner, device, &context->inner, error);
    if (!status && after) {
        (void)instance->tables.base.context_close(context->inner, error); /* the context is empty */
        status = fault_fail_after(FAULT_CONTEXT_OPEN, after, error);
    }
    if (status) {
        free(context);
        return status;
    }
    fault_release_init(context);
    *ret_context = context;
    return MOOR_OK;
}

static int32_t context_close(struct moor_abi_context *context, struct moor_abi_error *error)
{
    int32_t failure = fault_enter(context->instance, FAULT_CONTEXT_CLOSE, NULL, error);
    int32_t status = fault_tables(context)->base.context_close(context->inner, error);
    if (status)
        return status;
    fault_release_finish(context);
    free(context);
    return failure;
}

static int32_t context_native(struct moor_abi_context *context, uint64_t *ret_native,
                              struct moor_abi_error *error)
{
    int32_t status = fault_enter(context->instance, FAULT_CONTEXT_NATIVE, NULL, error);
    return status ? status : fault_tables(context)->base.context_native(context->inner, ret_native, error);
}

static int32_t get_extension(struct moor_abi_instance *instance, const char *name, uint32_t version,
                             const void **ret_table, struct moor_abi_error *error)
{
    if (name && ret_table && version == MOOR_FAULT_CONTROL_VERSION && strcmp(name, MOOR_FAULT_CONTROL) == 0) {
        *ret_table = &instance->fault.control;
        return MOOR_OK;
    }
    int32_t status = fault_enter(instance, FAULT_GET_EXTENSION, NULL, error);
    return status ? status
                  : instance->tables.base.get_extension(instance->inner, name, version, ret_table, error);
}

static MOOR_KIT_TABLE(base, base_table, .init = init, .shutdown = shutdown, .device_count = device_count,
                      .device_info = device_info, .domain_info = domain_info, .context_open = context_open,
                      .context_close = context_close, .context_native = context_native,
                      .get_extension = get_extension);

MOOR_KIT_PROVIDER(MOOR_ABI_CAPS_1_0, 0, .name = "fault", .vendor = "Moorage", .version = "0.1.0",
                  .base = &base_table, .alloc = &fault_alloc_table, .stream = &fault_stream_table,
                  .release = &fault_release_table, .copy = &fault_copy_table,
                  .virtual_ = &fault_virtual_table, .shared = &fault_shared_table,
                  .pinned = &fault_pinned_table, .stats = &fault_stats_table);
