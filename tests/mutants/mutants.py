# SPDX-License-Identifier: MIT
"""Runs `moor check` against every mutant, a CPU provider with one fault. Each check that MUTANTS names must fail by
itself. The sound provider in the same wrapping passes all of these checks."""
import concurrent.futures
import os
import sys

sys.path.insert(0, os.path.join(sys.argv[3], "tests", "tool"))
from moor_tool import PROVIDER, check, finish, moor, skip  # noqa: E402

TIMEOUT_S = 7  # limit of one check: some mutants hang

MUTANTS = {  # mutation: the checks that must fail
    # base
    "base.entry_changes": "base.entry_constant",
    "base.one_instance": "base.instances_independent",
    "base.opens_once": "base.context_twice",
    "base.count_changes": "base.device_count_stable",
    "base.writes_error": "base.device_count_stable",
    "base.native_nothing": "base.context_native",
    "base.extension_nothing": "base.extension_unknown",
    "device_info.any_device": "base.device_out_of_range",
    "device_info.key_changes": "base.device_keys_stable host.loads_again",
    "device_info.size": "base.device_info_size",
    "device_info.tail": "base.device_info_size",
    "device_info.on_failure": "base.device_out_of_range",
    "domain_info.any_domain": "base.domain_out_of_range",
    "domain_info.total_changes": "base.domain_info_stable",
    "domain_info.size": "base.domain_info_size",
    "domain_info.tail": "base.domain_info_size",
    "domain_info.on_failure": "base.domain_out_of_range",
    # traces left in the process
    "base.leaves_thread": "life.cycles",
    "base.leaves_file": "life.cycles",
    "base.leaves_map": "life.cycles",
    "base.leaves_memory": "life.cycles",
    "base.leaves_little": "life.cycles",
    "base.hangs_forked_child": "life.fork",
    "base.hangs_exit": "life.fork",
    "base.takes_signal": "life.process_state",
    "call.changes_signal_mask": "life.thread_state",
    "call.changes_handlers": "life.thread_state",
    "call.changes_directory": "life.thread_state",
    "call.changes_umask": "life.thread_state",
    "call.changes_rounding": "life.thread_state",
    "call.changes_environment": "life.thread_state",
    # alloc
    "alloc.takes_zero_bytes": "alloc.size_zero",
    "alloc.wraps": "alloc.size_endless",
    "alloc.takes_flags": "alloc.flags_unknown",
    "alloc.takes_alignments": "alloc.alignment_bad",
    "alloc.takes_domains": "alloc.domain_unknown",
    "alloc.ignores_alignment": "alloc.alignments",
    "alloc.handle_zero": "alloc.sizes",
    "alloc.handle_again": "alloc.handles_unique",
    "alloc.address_again": "alloc.contents_distinct",
    "alloc.races": "threads.own_contexts threads.shared_context",
    "alloc.overlaps_by_a_page": "alloc.no_overlap",
    "alloc.misaligned": "alloc.sizes",
    "alloc.bytes_asked": "alloc.footprint",
    "alloc.bytes_more": "alloc.footprint host.books_balance host.grants_have_room",
    "alloc.bytes_short": "alloc.sizes",
    "alloc.not_zero": "alloc.zero host.zeroed_buffers",
    "alloc.later": "stats.system_agrees",
    "footprint.bytes_asked": "alloc.footprint",
    "alloc_args.short": "alloc.args_size",
    "alloc_args.tail": "alloc.args_size",
    "allocation.size": "alloc.result_size",
    "allocation.tail": "alloc.result_size",
    "allocation.on_failure": "alloc.size_endless",
    # stream
    "record.skips": "stream.records_count",
    "record.from_zero": "stream.records_count",
    "record.races": "threads.records",
    "watermark.ahead": "stream.starts_at_zero stream.value_waits_for_work",
    "watermark.goes_back": "stream.watermark_advances",
    "watermark.stands_still": "stream.watermark_advances",
    "wait.ignores_deadline": "stream.wait_deadline",
    "wait.gives_up": "stream.wait_deadline threads.waits",
    "wait.never_waits": "stream.wait_deadline stream.wait_reaches",
    "wait.ok_at_deadline": "stream.wait_deadline",
    "wait.takes_unrecorded": "stream.wait_unrecorded",
    "wait_stream.ignored":
        "stream.waits_for_stream stream.waits_across_contexts copy.waits_for_streams copy.between_streams",
    "wait_stream.not_for_itself": "stream.waits_for_itself",
    "wait_stream.waits": "stream.submits_without_waiting",
    "wait_stream.by_name": "stream.wait_outlives_other",
    "host_function.lost": "stream.functions_in_order",
    "host_function.twice": "stream.functions_in_order threads.functions",
    "host_function.beside": "stream.functions_before_value",
    "stream.takes_flags": "stream.flags_unknown",
    "stream.takes_import": "stream.import_nothing",
    "stream.native_nothing": "stream.native",
    "stream.at_most_32": "stream.many",
    "stream_args.short": "stream.args_size",
    "stream_args.tail": "stream.args_size",
    # release
    "release.ignores_points":
        "release.waits_for_points release.points_of_other_contexts release.many_behind_one "
        "pinned.unpin_waits host.release_waits",
    "release.first_point_alone": "release.waits_for_each_point",
    "release.last_point_alone": "release.waits_for_each_point",
    "release.ignores_stride": "release.point_stride",
    "release.takes_strides": "release.stride_short",
    "release.takes_stale": "release.twice_gone",
    "release.takes_anything": "release.never_given release.twice_queued release.other_context",
    "release.takes_kinds": "release.kind_unknown",
    "release.takes_other_kinds": "release.other_kind",
    "release.refused_and_queued": "release.never_given",
    "release_args.short": "release.args_size",
    "release_args.tail": "release.args_size",
    "completion.twice": "release.completes_once threads.reaps",
    "completion.lost": "release.completes_once",
    "completion.cookie": "release.actual_bytes",
    "completion.bytes_none": "release.actual_bytes host.edge_of_budget",
    "completion.bytes_more": "release.actual_bytes",
    "completion.bytes_always": "virtual.addresses_take_no_memory",
    "completion.failed": "release.actual_bytes",
    "completion.reserved": "release.actual_bytes",
    "reap.never_waits": "release.reap_waits",
    "reap.nothing_at_once": "release.at_once",
    "reap.over_capacity": "release.reap_capacity",
    "reap.ignores_stride": "release.reap_stride",
    "reap.waits_for_nothing": "release.reap_nothing",
    "reap.ignores_deadline": "release.reap_deadline",
    "reap.timeout": "release.reap_deadline",
    # copy
    "copy.short": "copy.directions pinned.copies host.wrapped_memory",
    "copy.next_byte": "copy.directions host.copies_with_the_host",
    "copy.large_ones_alone": "copy.directions",
    "copy.long": "copy.only_named_bytes",
    "copy.no_d2d": "copy.any_device_memory host.copy_on_write",
    "copy.beside": "copy.waits_for_work copy.stream_order",
    "copy.takes_nothing": "copy.refuses_nothing",
    "copy.takes_wrapping": "copy.refuses_wrapping",
    "copy.takes_directions": "copy.refuses_directions",
    "copy.takes_flags": "copy.refuses_flags",
    "copy.refuses_and_writes": "copy.refuses_flags",
    "copy_args.short": "copy.structs",
    "copy_args.tail": "copy.structs",
    "fill.byte_order": "copy.fill_patterns",
    "fill.first_byte_alone": "copy.fill_patterns",
    "fill.long": "copy.fill_patterns",
    "fill.short": "copy.fill_patterns",
    "fill.takes_nothing": "copy.refuses_nothing",
    "fill.takes_patterns": "copy.refuses_patterns",
    "fill.takes_places": "copy.refuses_patterns",
    "fill.takes_flags": "copy.refuses_flags",
    "fill_args.short": "copy.structs",
    "fill_args.tail": "copy.structs",
    # virtual
    "range.misaligned": "virtual.addresses_are_aligned",
    "range.handle_again": "virtual.ranges_are_apart",
    "range.address_again": "virtual.ranges_are_apart",
    "range.takes_memory": "virtual.addresses_take_no_memory",
    "range.leaves_map": "virtual.ranges_leave_nothing",
    "range.wraps": "virtual.refuses_too_much",
    "range.takes_zero_bytes": "virtual.refuses_args",
    "range.takes_sizes": "virtual.refuses_args",
    "range.takes_granules": "virtual.refuses_args",
    "range.takes_alignments": "virtual.refuses_args",
    "range.takes_domains": "virtual.refuses_args",
    "range.takes_flags": "virtual.refuses_args",
    "range.goes_with_memory": "virtual.range_with_memory_stays",
    "range.goes_early": "virtual.range_waits",
    "range_args.short": "virtual.structs",
    "range_args.tail": "virtual.structs",
    "range.size": "virtual.structs",
    "range.tail": "virtual.structs",
    "range.on_failure": "virtual.refuses_too_much",
    "commit.offset_32": "virtual.far_granules",
    "commit.nothing": "virtual.fresh_memory_is_zero",
    "commit.not_zero": "virtual.fresh_memory_is_zero host.ranges_grow",
    "commit.later": "stats.system_agrees",
    "commit.bytes_more": "virtual.any_granule host.transactions",
    "commit.in_part": "virtual.commit_is_all_or_nothing",
    "commit.takes_committed": "virtual.commit_is_all_or_nothing",
    "commit.takes_stale": "virtual.wrong_handles",
    "commit.rounds_span": "virtual.refuses_spans",
    "commit.writes_on_failure": "virtual.refuses_spans",
    "committed.all": "virtual.committed_counts",
    "committed.without_leaving": "virtual.decommit_waits",
    "committed.with_maps": "shared.maps_are_not_committed",
    "committed.rounds_span": "virtual.refuses_spans",
    "committed.takes_stale": "virtual.wrong_handles",
    "decommit.early": "virtual.decommit_waits",
    "decommit.next_granule": "virtual.contents_stay",
    "decommit.rounds_span": "virtual.refuses_spans",
    "decommit.takes_uncommitted": "virtual.decommit_refuses_uncommitted",
    # shared
    "segment.handle_again": "shared.segments_are_apart",
    "segment.bytes_more": "shared.held_once",
    "segment.wraps": "shared.refuses_args",
    "segment.takes_zero_bytes": "shared.refuses_args",
    "segment.takes_sizes": "shared.refuses_args",
    "segment.takes_granules": "shared.refuses_args",
    "segment.takes_domains": "shared.refuses_args",
    "segment.takes_flags": "shared.refuses_args",
    "segment.goes_while_mapped": "shared.mapped_things_stay",
    "segment.goes_early": "shared.segment_waits",
    "segment_args.short": "shared.structs",
    "segment_args.tail": "shared.structs",
    "segment.size": "shared.structs",
    "segment.tail": "shared.structs",
    "map.always_the_first": "shared.segments_are_apart",
    "map.private": "shared.same_memory",
    "map.first_byte_set": "shared.fresh_memory_is_zero",
    "map.writable": "shared.read_only_maps",
    "map.takes_access": "shared.refuses_access",
    "map.takes_places": "shared.map_refuses_spans",
    "map.takes_taken": "shared.map_refuses_taken",
    "map.takes_stale": "shared.wrong_handles",
    "map_args.short": "shared.structs",
    "map_args.tail": "shared.structs",
    "protect.nothing": "shared.protect_changes_access",
    "protect.loses_contents": "shared.protect_changes_access",
    "protect.every_map": "shared.protect_changes_one_map",
    "protect.takes_access": "shared.refuses_access",
    "protect.takes_unmapped": "shared.protect_refuses_unmapped",
    "protect.takes_other_segments": "shared.protect_refuses_unmapped",
    "protect.takes_leaving": "shared.unmap_waits",
    "protect.unshares": "shared.protect_changes_one_map",
    "protect_args.short": "shared.structs",
    "protect_args.tail": "shared.structs",
    "unmap.early": "shared.unmap_waits",
    "unmap.next_granule": "shared.unmap_leaves_others",
    "unmap.loses_contents": "shared.contents_outlive_maps",
    "unmap.takes_parts": "shared.unmap_takes_one_map",
    # pinned
    "pin.handle_zero": "pinned.contents_stay",
    "pin.handle_again": "pinned.many",
    "pin.loses_contents": "pinned.contents_stay",
    "pin.takes_access": "pinned.contents_stay",
    "pin.takes_places": "pinned.refuses_args",
    "pin.takes_flags": "pinned.refuses_args",
    "pin.limit_is_invalid": "pinned.limit_is_told",
    "pin.writes_on_failure": "pinned.limit_is_told",
    "pin_args.short": "pinned.structs",
    "pin_args.tail": "pinned.structs",
    "unpin.takes_anything": "pinned.wrong_handles",
    # stats
    "stats.held_never_falls": "stats.held_follows",
    "stats.held_a_page_more": "stats.held_follows",
    "stats.held_by_all": "stats.held_by_its_own",
    "stats.held_by_maps": "shared.held_once",
    "stats.first_domain": "stats.held_by_its_own",
    "stats.system_held_more": "stats.system_agrees",
    "stats.free_over_total": "stats.figures_make_sense",
    "stats.free_by_its_own": "stats.figures_make_sense",
    "stats.huge_over_held": "stats.figures_make_sense",
    "stats.unknown_bit": "stats.figures_make_sense",
    "stats.reserved_set": "stats.structs",
    "stats.any_domain": "stats.refuses_domains",
    "stats.size": "stats.structs",
    "stats.tail": "stats.structs",
    "stats.on_failure": "stats.refuses_domains",
}

# The core checks these facts itself and refuses the provider before any check runs.
REFUSED = ["base.refuses_1_0", "device_info.key_empty", "device_info.domains_17", "device_info.overrun",
           "domain_info.overrun", "domain_info.capability_unknown", "domain_info.flag_unknown",
           "domain_info.granule_odd", "domain_info.kinds_equal", "domain_info.pool_key_empty"]


# No setting can change the tables of a provider. These providers of the zoo have wrong tables, and are refused too.
REFUSED_FILES = ["bad_magic", "bit_without_table", "table_without_bit", "null_function", "note_disagrees"]
ZOO = sys.argv[5]


def results(result):
    return {entry["name"]: entry["result"] for entry in result.json().get("checks", [])}


def run(checks, *options):
    return moor("check", PROVIDER, *checks, *options, "--json", "--timeout", TIMEOUT_S)


killers = {mutation: checks.split() for mutation, checks in MUTANTS.items()}
all_checks = sorted({name for checks in killers.values() for name in checks})
result = run(all_checks)
sound = results(result)
check("every check passes without a mutation",
      result.status == 0 and sound.keys() == set(all_checks) and "failed" not in sound.values(), result)


def try_mutant(mutation):
    return run(killers.get(mutation, ["base"]), "--set", f"mutant={mutation}")


with concurrent.futures.ThreadPoolExecutor(4) as pool:  # some mutants sleep
    mutations = [*killers, *REFUSED]
    for mutation, result in zip(mutations, pool.map(try_mutant, mutations)):
        for name in killers.get(mutation, []):
            if sound[name] == "skipped":
                skip(f"{name} detects {mutation}", "the check cannot be made here")
            else:
                check(f"{name} detects {mutation}", results(result).get(name) == "failed", result)
        if mutation in REFUSED:
            check(f"the core refuses {mutation}", result.status == 3, result)
for name in REFUSED_FILES:
    result = moor("check", os.path.join(ZOO, name + ".so"))
    check(f"the core refuses {name}", result.status == 3 and result.out == "", result)
finish()
