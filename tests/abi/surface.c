/* SPDX-License-Identifier: MIT */
/* Names every struct and table of the contract: the debug information of this file describes them all. */
#include <moorage/abi/provider.h>

MOOR_ABI_EXPORT struct surface {
    struct moor_abi_error error;
    struct moor_abi_device_info device_info;
    struct moor_abi_domain_info domain_info;
    struct moor_abi_fence_point fence_point;
    struct moor_abi_alloc_args alloc_args;
    struct moor_abi_allocation allocation;
    struct moor_abi_stream_args stream_args;
    struct moor_abi_copy_args copy_args;
    struct moor_abi_fill_args fill_args;
    struct moor_abi_range_args range_args;
    struct moor_abi_range range;
    struct moor_abi_segment_args segment_args;
    struct moor_abi_segment segment;
    struct moor_abi_map_args map_args;
    struct moor_abi_pin_args pin_args;
    struct moor_abi_release release;
    struct moor_abi_completion completion;
    struct moor_abi_stats stats;
    struct moor_abi_base_table base_table;
    struct moor_abi_alloc_table alloc_table;
    struct moor_abi_stream_table stream_table;
    struct moor_abi_release_table release_table;
    struct moor_abi_copy_table copy_table;
    struct moor_abi_virtual_table virtual_table;
    struct moor_abi_shared_table shared_table;
    struct moor_abi_pinned_table pinned_table;
    struct moor_abi_stats_table stats_table;
    struct moor_abi_prefix prefix;
    struct moor_abi_note note;
    struct moor_abi_host host;
    struct moor_abi_provider provider;
} surface;

const struct moor_abi_provider *moor_provider_entry_v1(void)
{
    return &surface.provider;
}
