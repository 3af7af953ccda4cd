/* SPDX-License-Identifier: MIT */
/*
 * The mock, with a watermark that does what the setting `misbehaves` says: nothing but the checks that ask
 * for a watermark should suffer.
 */
#define moor_provider_entry_v1 mock_entry
#include "../../../plugins/mock/mock.c"
#undef moor_provider_entry_v1

#include <signal.h>
#include <unistd.h>

static const char *misbehaviour;

static int32_t init_and_read(const struct moor_abi_host *host, uint32_t negotiated_minor,
                             struct moor_abi_instance **ret_instance, struct moor_abi_error *error)
{
    misbehaviour = host->config(host->user, "misbehaves");
    puts("a provider prints this");
    host->log(host->user, MOOR_ABI_LOG_INFO, "a provider logs this");
    return mock_init(host, negotiated_minor, ret_instance, error);
}

static int32_t misbehave(struct moor_abi_stream *stream, uint64_t *ret_value, struct moor_abi_error *error)
{
    int32_t status = mock_watermark(stream, ret_value, error);
    if (!misbehaviour)
        return status;
    if (strcmp(misbehaviour, "crashes") == 0)
        (void)raise(SIGSEGV);
    else if (strcmp(misbehaviour, "exits") == 0)
        exit(0);
    else if (strcmp(misbehaviour, "hangs") == 0)
        for (;;)
            (void)pause();
    else if (strcmp(misbehaviour, "closes files") == 0)
        closefrom(3);
    else if (strcmp(misbehaviour, "fails") == 0)
        return moor_kit_fail(error, MOOR_PROVIDER, 7, "two lines,\nnot \xff UTF-8");
    else
        ++*ret_value;
    return status;
}

MOOR_ABI_EXPORT const struct moor_abi_provider *moor_provider_entry_v1(void);

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    static struct moor_abi_base_table base;
    static struct moor_abi_stream_table stream;
    static struct moor_abi_provider changed;
    base = base_table;
    base.init = init_and_read;
    stream = stream_table;
    stream.watermark = misbehave;
    changed = provider;
    changed.base = &base;
    changed.stream = &stream;
    return &changed;
}
