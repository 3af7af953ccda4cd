# SPDX-License-Identifier: MIT
"""Bugs to plant, one or two lines each. The old text must be in the file exactly once, spaces and line ends
aside. The last field says who must find it, each of them: a suite, the governor's model in lockstep, the sweep over
some scenarios, the governor's stress test, and moor sim with a profile."""
from typing import NamedTuple


class Bug(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    found_by: str
    unit: str  # what is compiled: the file, or one that includes it


BUGS = []


def plant(file, *bugs, unit=None):
    BUGS.extend(Bug(name, file, old, new, found_by, unit or file) for name, old, new, found_by in bugs)


def vary(file, *variants, unit=None):
    """Bugs for the governor's model."""
    plant(file, *[(*variant, "lockstep") for variant in variants], unit=unit)


# ---- work that is forgotten, or waited for too little ----

plant("core/memory/copy.c",
      ("a copy does not mark its destination",
       "settle(sides, 2, !status); return status; }  /* ---- between providers ---- */",
       "settle(sides, 1, false); settle(&sides[1], 1, !status); return status; }",
       "core/copies, sim mixed"),
      ("a copy does not mark its source",
       "settle(sides, 2, !status); return status; }  /* ---- between providers ---- */",
       "settle(sides, 1, !status); settle(&sides[1], 1, false); return status; }",
       "core/copies, sim pressure"),
      ("a fill does not mark its destination",
       "settle(&access, 1, called == MOOR_OK);", "settle(&access, 1, false);",
       "core/release, sim pressure"),
      ("a host function does not mark its views",
       "settle(accesses, begun, called == MOOR_OK);", "settle(accesses, begun, false);",
       "core/streams, sim sharing"),
      ("work of the host's own is not marked",
       "if (!status) moor__access_end(&access);", "if (!status) moor__access_cancel(&access);",
       "core/release, sim pressure"))

plant("core/memory/stream.c",
      ("a wait for another stream is dropped",
       "if (fence->stream == stream) return MOOR_OK;", "if (fence->stream) return MOOR_OK;",
       "core/streams, sim faults"),
      ("a mark is covered one record too early",
       "while (recorded < value && !status)", "while (recorded + 1 < value && !status)",
       "core/streams, sim pressure"),
      ("a mark is the last record before the work",
       "atomic_load_explicit(&stream->started, memory_order_seq_cst) + 1;",
       "atomic_load_explicit(&stream->started, memory_order_seq_cst);", "core/release, sim pressure"),
      ("a stream is destroyed before its frees",
       "provider->epoch < stream->drained_epoch + 2", "provider->epoch < stream->drained_epoch",
       "core/streams, sim lifecycle"),
      ("the epoch advances whatever is in flight",
       "step < 2 && provider->in_flight[(provider->epoch + 1) & 1] == 0;", "step < 2;",
       "core/streams, sim lifecycle"),
      ("a stream is done while its work runs",
       "moor__stream_passed(stream, atomic_load_explicit(&stream->recorded, memory_order_acquire));",
       "true;", "core/streams, sim sharing"),
      ("a fence that was never recorded is waited for",
       "fence->value > atomic_load_explicit(&fence->stream->recorded, memory_order_acquire)",
       "fence->value == UINT64_MAX", "core/streams"))

plant("core/memory/stream.c",
      ("there may be any number of streams",
       "bool room = provider->stream_count < MOOR_LIMIT_STREAMS;", "bool room = true;", "core/streams"),
      ("a stream that cannot be destroyed stays counted",
       "moor__count(stream->device, MOOR__COUNT_STREAM, -1); moor__stream_unref(stream);",
       "if (!called) moor__count(stream->device, MOOR__COUNT_STREAM, -1); moor__stream_unref(stream);",
       "core/streams"))

plant("core/memory/uses.c",
      ("newer work of one stream drops that of the others",
       "if (use->stream != newest.stream || use->value == MOOR__USE_SUBMITTING) continue; bool covered",
       "if (use->value == MOOR__USE_SUBMITTING) continue; bool covered", "core/streams, sim streams"),
      ("uses that grow into one keep the earlier value",
       "merged.value = use->value > merged.value ? use->value : merged.value;",
       "merged.value = use->value < merged.value ? use->value : merged.value;",
       "core/streams, sim pressure"),
      ("uses that grow into one lose their upper part",
       "merged.high = use->high > merged.high ? use->high : merged.high;", "", "core/streams"),
      ("a use is forgotten one value too early",
       "moor__stream_passed(use->stream, use->value)) drop(uses, i);",
       "moor__stream_passed(use->stream, use->value - 1)) drop(uses, i);",
       "core/release, sim pressure"),
      ("a use that begins inside the part is overlooked",
       "return use->low < high && low < use->high;", "return use->low <= low && low < use->high;",
       "core/ranges, sim pressure"))

plant("core/memory/release.c",
      ("a segment that is on its way already is let go once more", "!object->ticket && !object->was_let_go);",
       "!object->ticket);", "core/callbacks"),
      ("a release does not name the last value",
       "if (moor__stream_passed(stream, points[i].value)) continue;",
       "if (moor__stream_passed(stream, points[i].value - 1)) continue;", "core/release, sim pressure"),
      ("a completion is dropped", "for (uint32_t i = 0; i < count; i++) complete(",
       "for (uint32_t i = 0; i + 1 < count; i++) complete(", "core/release, sim faults"),
      ("cookies are mixed up", ".cookie = cookie,", ".cookie = cookie ^ 1,",
       "core/release, sim faults"),
      ("a completion is believed twice",
       "if (!object || !atomic_compare_exchange_strong_explicit(&object->state, &leaving, MOOR__STATE_LIVE,"
       " memory_order_acq_rel, memory_order_relaxed))",
       "(void)leaving; if (!object)", "core/quarantine"),
      ("a release that failed counts as done",
       "if (completion->status == MOOR_OK) {", "if (completion->status <= MOOR_OK) {",
       "core/quarantine, sim faults"),
      ("a refused release stays pending",
       "from_pending(object); moor__object_settled(object, MOOR__FATE_KEPT);",
       "moor__object_settled(object, MOOR__FATE_KEPT);", "core/quarantine, sim faults"))

plant("core/memory/buffer.c",
      ("a buffer leaves without its last uses",
       "&release, points, count); }  void moor__buffer_gone",
       "&release, points, 0); }  void moor__buffer_gone",
       "core/release, sim pressure"),
      ("a failed allocation keeps its reservation",
       "no_memory: moor__claim_return(&claim);", "no_memory:", "core/allocate, sim mixed"),
      ("the handle is written before the provider is asked",
       "status = call_allocate(buffer, &args);",
       "*ret_buffer = name_of(buffer); status = call_allocate(buffer, &args);", "core/allocate"),
      ("a size that wraps with its alignment is let through",
       "if (size_bytes > UINT64_MAX - alignment)", "if (size_bytes == 0)", "core/allocate"),
      ("a charge for wrapped memory is not refunded",
       "if (buffer->leased_bytes) moor__refund_leased", "if (false) moor__refund_leased",
       "core/wrap, sim lifecycle"),
      ("wrapped memory that is not charged keeps its room",
       "if (flags & MOOR_BUFFER_CHARGE) status = moor__claim_take",
       "if (flags + 1) status = moor__claim_take",
       "core/wrap, sim lifecycle"))

# ---- ranges, segments, copy on write ----

plant("core/memory/piece.c",
      ("a decommit does not wait for work",
       "status = moor__piece_submit(piece, false); if (status) { put_back",
       "status = moor__piece_submit(piece, true); if (status) { put_back", "core/ranges, sim pressure"),
      ("granules on their way out are free already",
       "moor__range_set(range, first, count, MOOR__CELL_LEAVING); range->pieces_out++; }",
       "moor__range_set(range, first, count, MOOR__CELL_FREE); range->pieces_out++; }",
       "core/ranges, sim memory"),
      ("a decommit that is refused loses its granules",
       "moor__range_set(range, piece->first, piece->count, MOOR__CELL_COMMITTED);",
       "moor__range_set(range, piece->first, piece->count, MOOR__CELL_FREE);",
       "core/quarantine, sim faults"),
      ("a decommit under a submission is let through",
       "if (moor__uses_submitting(&range->uses, offset, offset + piece->count * range->granule_bytes))",
       "if (offset == UINT64_MAX)", "core/ranges"),
      ("a decommit pends nothing",
       "= mapping ? 0 : count * range->granule_bytes;", "= 0;",
       "core/ranges, sim memory"))

plant("core/memory/range.c",
      ("offset and length that wrap are let through",
       "if (length_bytes > UINT64_MAX - offset_bytes)", "if (length_bytes > UINT64_MAX - 1)",
       "core/ranges, sim faults"),
      ("an offset inside a granule is let through",
       "length_bytes == 0 || offset_bytes % range->granule_bytes ||", "length_bytes == 0 ||", "core/ranges"),
      ("a part beyond the range is let through",
       "if (offset_bytes + length_bytes > range->size_bytes)",
       "if (offset_bytes + length_bytes > range->size_bytes + range->granule_bytes)",
       "core/ranges, sim faults"),
      ("addresses go before the last piece",
       "bool last = --range->pieces_out == 0 && range->leaving;",
       "bool last = --range->pieces_out <= 1 && range->leaving;", "core/ranges, sim mixed"),
      ("granules with different uses leave together",
       "while (end < range->cell_count && end * range->granule_bytes < limit &&",
       "(void)limit; while (end < range->cell_count &&", "core/ranges"),
      ("a range that is too large wraps",
       "if (size_bytes > UINT64_MAX - alignment)", "if (size_bytes == 0)", "core/allocate"),
      ("addresses that are leaving are not looked at",
       "moor__poll(moor__runtime_of(binding));", "(void)0;", "core/ranges"),
      ("a failed reserve keeps its slot", "else free_slot(range);", "else (void)free_slot;",
       "core/ranges, sim lifecycle"))

plant("core/memory/segment.c",
      ("sealing does not wait for the writers",
       "status = moor__range_await_uses(range, offset, segment->size_bytes, deadline_ns);"
       " if (!status) status =",
       "(void)deadline_ns; status =", "core/segments, sim streams"),
      ("sealing does not make the mapping read-only",
       "status = moor__segment_call_protect(segment, range, first, MOOR_ABI_ACCESS_READ);",
       "status = MOOR_OK;", "core/segments"),
      ("a segment goes with its handle, mapped or not",
       "void moor__segment_disown(struct moor__segment *segment) { moor__lock_acquire(&segment->lock);"
       " bool last = --segment->owners == 0;",
       "void moor__segment_disown(struct moor__segment *segment) { moor__lock_acquire(&segment->lock);"
       " bool last = --segment->owners <= 1;", "core/segments, sim mixed"),
      ("a segment that only leaving mappings keep is not pending",
       "return segment->stuck ? MOOR__STANDING_QUARANTINED : MOOR__STANDING_PENDING;",
       "return segment->stuck ? MOOR__STANDING_QUARANTINED : MOOR__STANDING_LIVE;",
       "core/quarantine, sim sharing"),
      ("a segment that a stuck mapping keeps is pending",
       "return segment->stuck ? MOOR__STANDING_QUARANTINED : MOOR__STANDING_PENDING;",
       "return MOOR__STANDING_PENDING;", "core/quarantine"))

plant("core/memory/writable.c",
      ("copy on write writes in place though others share",
       "bool alone = old->owners == 1;", "bool alone = old->owners <= 2;",
       "core/writable, sim sharing"),
      ("copy on write does not copy",
       "int32_t called = moor__to_call(table)->copy.copy(stream->stream, &args, &error);",
       "int32_t called = MOOR_OK;", "core/writable"),
      ("copy on write copies from the start of the range",
       ".source = exchange->range->address + low,", ".source = exchange->range->address,",
       "core/writable, sim sharing"),
      ("copy on write copies the first granule alone",
       ".size_bytes = size,", ".size_bytes = exchange->range->granule_bytes,", "core/writable"),
      ("copy on write does not mark what it reads",
       "settle(exchange->range, stream, low, low + size, called == MOOR_OK);",
       "settle(exchange->range, stream, low, low + size, false);", "core/writable, sim faults"),
      ("a copy on write that fails keeps the granules busy",
       "else if (exchange->old) show(exchange, exchange->old, false);", "else (void)0;",
       "core/writable, sim sharing"),
      ("a copy on write that does not fit is charged to nobody",
       "moor__object_doom(&exchange->new->object, &claim, grant);", "moor__claim_return(&claim);",
       "core/writable"),
      ("granules that could not be put back stay busy",
       "moor__range_set(range, exchange->first, exchange->count, MOOR__CELL_FREE);", "", "core/writable"),
      ("writing in place leaves the mapping read-only",
       "moor__segment_call_protect(old, exchange->range, exchange->first, MOOR_ABI_ACCESS_READ_WRITE);",
       "MOOR_OK;", "core/writable"))

plant("core/memory/prepare.c",
      ("granules behind the first are taken whatever they are",
       "moor_status status = moor__range_expect(range, work->first, work->count, MOOR__CELL_FREE);",
       "moor_status status = moor__range_expect(range, work->first, 1, MOOR__CELL_FREE);",
       "core/ranges, sim faults"),
      ("a new segment is mapped into a range of another domain",
       "status = check_same_domain(work, step->binding);", "status = MOOR_OK;",
       "core/transactions, sim sharing"),
      ("a segment is mapped into a range of another granule",
       "work->segment->granule_bytes != work->range->granule_bytes)", "work->segment->granule_bytes == 0)",
       "core/segments, sim lifecycle"),
      ("a segment that is not sealed is mapped read-only",
       "segment->sealing || segment->sealed == writable ||", "segment->sealing ||",
       "core/segments, sim memory"))

plant("core/memory/transact.c",
      ("the undo leaves out the first step",
       "for (size_t i = count; i-- > 0;) { struct moor__work *work = &works[i]; if",
       "for (size_t i = count; i-- > 1;) { struct moor__work *work = &works[i]; if",
       "core/transactions, sim sharing"),
      ("steps are undone in the order they were done",
       "for (size_t i = count; i-- > 0;) { struct moor__work *work = &works[i]; if",
       "for (size_t i = 0; i < count; i++) { struct moor__work *work = &works[i]; if", "core/transactions"),
      ("the undo of a commit keeps its granules",
       "undo_cells(work, NULL); else moor__work_free_cells(work);", "undo_cells(work, NULL);",
       "core/transactions, sim sharing"),
      ("a step that was not charged is undone as if it was",
       "work->charged = !status;", "work->charged = true;", "core/segments"),
      ("the undo forgets the grant",
       "object->grant = moor__grant_expect(work->runtime, work->step->grant);", "object->grant = NULL;",
       "core/transactions"),
      ("a claim of a step that failed is kept",
       "else if (work->stage == MOOR__STAGE_CLAIMED) moor__claim_return(&work->claim);", "",
       "core/transactions, sim faults"),
      ("a new segment's mapping has no share",
       "if (work->range) { segment->owners++;", "if (work->range) {", "core/transactions, sim faults"),
      ("a new segment is not charged",
       "if (work->step->kind == MOOR_STEP_MAP) return MOOR_OK; moor_status status = moor__claim_charge(",
       "if (work->step->kind != MOOR_STEP_COMMIT) return MOOR_OK; moor_status status = moor__claim_charge(",
       "core/segments, sim memory"))

plant("core/memory/access.c",
      ("a view beyond its owner is let through",
       "view->address < base || view->address + view->size_bytes > base + size_bytes", "view->address < base",
       "core/copies, sim streams"),
      ("offset and size of a part that wrap are let through",
       "if (offset_bytes > UINT64_MAX - size_bytes)", "if (size_bytes == UINT64_MAX)",
       "core/copies, sim memory"),
      ("a read-only mapping is written",
       "if (!readable || (write && state == MOOR__CELL_MAPPED_READ))", "(void)write; if (!readable)",
       "core/segments, sim memory"),
      ("a granule that is not backed is copied",
       "bool readable = state == MOOR__CELL_COMMITTED || moor__cell_is_mapped(range->cells[i]);",
       "bool readable = true; if (!moor__cell_is_mapped(range->cells[i])) state = MOOR__CELL_COMMITTED;",
       "core/ranges, sim lifecycle"))

# ---- the books ----

plant("core/memory/release.c",
      ("a buffer's bytes are not refunded",
       "moor__refund(binding->holder, returned, object->requested_bytes, to_grant);",
       "if (object->kind != MOOR__KIND_BUFFER) moor__refund(binding->holder, returned, object->requested_bytes, to_grant);",
       "core/release, sim pressure"),
      ("decommitted bytes are not refunded",
       "moor__refund(binding->holder, returned, object->requested_bytes, to_grant);",
       "if (object->kind != MOOR__KIND_PIECE) moor__refund(binding->holder, returned, object->requested_bytes, to_grant);",
       "core/ranges, sim faults"),
      ("a segment's bytes are not refunded",
       "moor__refund(binding->holder, returned, object->requested_bytes, to_grant);",
       "if (object->kind != MOOR__KIND_SEGMENT) moor__refund(binding->holder, returned, object->requested_bytes, to_grant);",
       "core/segments, sim faults"),
      ("bytes are refunded twice",
       "moor__refund(binding->holder, returned, object->requested_bytes, to_grant);",
       "moor__refund(binding->holder, returned, object->requested_bytes, to_grant);"
       " moor__refund(binding->holder, returned, object->requested_bytes, to_grant);",
       "core/release, sim pressure"),
      ("pending bytes are counted twice",
       "to_pending(object, !object->ticket && !object->was_let_go); atomic_fetch_add",
       "to_pending(object, true); to_pending(object, true); atomic_fetch_add",
       "core/release, sim memory"),
      ("bytes that never came back are refunded",
       "uint64_t returned = actual_bytes < object->bytes ? actual_bytes : object->bytes;",
       "uint64_t returned = object->bytes;", "core/quarantine"),
      ("what comes back goes to the budget, not to the grant",
       "to_grant = object->grant_bytes < returned ? object->grant_bytes : returned;", "to_grant = 0;",
       "core/transactions"),
      ("quarantine counts as pending",
       "moor__quarantine(object->binding->holder, object->bytes); moor__object_settled", "moor__object_settled",
       "core/quarantine, sim faults"),
      ("quarantine is refunded",
       "moor__quarantine(object->binding->holder, object->bytes); moor__object_settled",
       "moor__refund(object->binding->holder, object->bytes, 0, 0); moor__object_settled",
       "core/quarantine, sim faults"),
      ("quarantine keeps the grant that it was drawn from",
       "if (object->grant) { moor__grant_restore(object->grant, 0);",
       "if (object->grant && object->retried) { moor__grant_restore(object->grant, 0);", "core/transactions"),
      ("quarantine is not listed",
       "device->quarantine = object; moor__lock_release", "moor__lock_release",
       "core/quarantine, sim faults"))

plant("core/memory/release.c",
      ("a device that is short is not asked again",
       "bool made = (*tries)++ == 0 &&", "bool made = (*tries)++ == 7 &&", "core/shortage, sim sharing"))

plant("core/memory/binding.c",
      ("quarantine is not tried again",
       "moor__quarantine_retry(binding->device);", "", "core/quarantine, sim faults"),
      ("lost bytes are not written off", "write_off_lost(binding); moor__count", "moor__count",
       "core/quarantine"),
      ("a binding is closed over what is pending",
       "if (count) return moor__fail( stuck", "if (live) return moor__fail( stuck",
       "core/governor, sim faults"),
      ("a binding does not keep its provider",
       "moor__count(device, MOOR__COUNT_BINDING, 1);", "", "core/providers, sim faults"))

plant("core/governor/admission.c",
      ("what is pending counts as gone for good",
       "uint64_t has = holder->has - moor__figure(&holder->books, MOOR__PENDING);"
       " uint64_t others = authority->claims_later - holder->claim_later + has;",
       "uint64_t has = holder->has; uint64_t others = authority->claims - holder->claim + has;",
       "core/governor, sim pressure"),
      ("a holder's limit is ignored", "part->bytes > own ? MOOR__OBSTACLE_LIMIT", "false ? MOOR__OBSTACLE_LIMIT",
       "core/governor, lockstep, sim mixed"),
      ("room wraps when the capacity shrinks below what is held",
       "return minus(moor__authority_capacity(authority), plus(others, set_aside(authority))); }"
       "  static uint64_t pool_room_later",
       "return moor__authority_capacity(authority) - others - set_aside(authority); } static uint64_t pool_room_later",
       "core/governor, sim memory"),
      ("what never fits is over budget",
       "*refusal = (struct moor__refusal){ .status = MOOR_NEVER_FITS,",
       "*refusal = (struct moor__refusal){ .status = MOOR_OVER_BUDGET,", "core/governor, sim memory"),
      ("a guarantee that is not used is lent", "uint64_t others = authority->claims - holder->claim + holder->has;",
       "uint64_t others = authority->has;", "core/limits, lockstep, sim governor"),
      ("the set-aside serves everybody", "? 0 : authority->set_aside;", "? 0 : 0;",
       "core/limits, lockstep, sim governor"),
      ("what a request would have of a pool is not forgotten", "wish->pools[i]->wished = 0;", "(void)wish;",
       "core/tickets, lockstep, sweep ticket"),
      ("a request that does not fit keeps its first part", "for (size_t i = wish->count; !now && i-- > 0;)",
       "for (size_t i = wish->count; !now && i-- > 1;)", "core/tickets, lockstep"),
      ("it is pending though only a part of it will fit", "later &= obstacle != MOOR__OBSTACLE_TURN &&",
       "later = obstacle != MOOR__OBSTACLE_TURN &&", "lockstep, sim governor"),
      ("who has a turn has no more right than others", "return turn && turn != whose &&",
       "return false && turn != whose &&", "core/turns, lockstep"),
      ("credit is not taken back before a no",
       "moor__credit_take_back(wish->pools[i], MOOR__STRICT_TIGHT);", "(void)wish;", "lockstep, sim pressure"))

plant("core/governor/queue.c",
      ("nobody is passed", "ticket->passed++;", "(void)ticket;", "core/turns, lockstep"),
      ("who does not wait passes nobody", "pass(queue, wish, UINT64_MAX);", "", "core/turns, lockstep"),
      ("a turn does not end", "if (ticket->turn_until_ns == 0 || (now_ns <",
       "if (ticket->turn_until_ns == 0 || (now_ns / 2 <", "core/turns, lockstep"),
      ("a turn outlives its ticket", "if (authority->turn == ticket) authority->turn = NULL;", "(void)ticket;",
       "core/turns, lockstep"),
      ("a ticket is not ended at its deadline", "&& now_ns >= ticket->deadline_ns)",
       "&& now_ns / 2 >= ticket->deadline_ns)", "core/tickets, lockstep"),
      ("relief does not end", "else if (ticket->kind == MOOR__TICKET_RELIEF &&",
       "else if (ticket->kind == MOOR__TICKET_RELIEF && false &&", "core/limits, lockstep, sweep smaller"),
      ("requests are served as they come, whatever their priority",
       "while (after && after->priority < ticket->priority)", "while (false)", "core/tickets, lockstep"),
      ("a request takes bytes and nobody else is looked at",
       "if (granted && queue->count) {", "if (false && queue->count) {", "core/turns, lockstep"))

plant("core/governor/books.c",
      ("what comes back is not given to those who wait", "if (heed)", "if (false && heed)",
       "core/tickets, lockstep, sim governor"),
      ("what will be there later is not kept", "authority->claims_later += later - holder->claim_later;", "",
       "core/pressure, lockstep, sweep pressed, sim governor"),
      ("a guarantee is given back and not counted", "holder->limits.guarantee_bytes = bytes; update_claims(holder);",
       "holder->limits.guarantee_bytes = bytes;", "core/limits, lockstep"),
      ("a cell is emptied twice", "atomic_store_explicit(&cell->books.figure[i], 0, memory_order_relaxed);", "",
       "core/stats, sweep grant, stress"),
      ("the credit of a cell is lost with it", "atomic_store_explicit(&cell->holder, NULL, memory_order_relaxed);"
       " free_credit(holder);", "atomic_store_explicit(&cell->holder, NULL, memory_order_relaxed);",
       "lockstep, sweep grant, sim governor"),
      ("the peak falls again", "if (charged > (int64_t)*peak)", "if (charged >= 0)", "core/stats, sim memory"))

plant("core/governor/books.h",
      ("more credit is given out than there is", "? moor__figure(&cell->books, MOOR__CREDIT) >= step->bytes",
       "? moor__figure(&cell->books, MOOR__CREDIT) > 0", "core/credit, lockstep"), unit="core/governor/grant.c")

plant("core/governor/charge.c",
      ("a release is not told", "tell(holder, MOOR_TRACE_RELEASE, bytes);", "", "core/trace"),
      ("what is returned is not told", "moor__trace(authority->runtime, MOOR_TRACE_RETURN, authority, holder, bytes, 0);",
       "(void)authority;", "core/trace, lockstep, sweep allocate"),
      ("quarantine is not told", "tell(holder, MOOR_TRACE_QUARANTINE, bytes);", "", "sweep evict"),
      ("what goes back to a grant is told as free", "tell(holder, MOOR_TRACE_RESTORE, restored);",
       "tell(holder, MOOR_TRACE_REFUND, restored);", "core/trace, sweep transaction"))

plant("core/governor/pressure.c",
      ("what was let go is not counted for the ticket", "ticket->evicted_bytes += bytes;", "(void)bytes;",
       "core/pressure, lockstep"),
      ("what is back stays pending for its ticket",
       "ticket->pending_bytes -= smaller(bytes, ticket->pending_bytes);", "(void)bytes;",
       "core/pressure, lockstep"),
      ("one that is asked counts beyond patience",
       "it->counts &= look->now_ns - it->since_ns < look->queue->patience_ns;", "", "core/callbacks"),
      ("one that gave too little does not rest",
       "holder->rest_until_ns = moor__governor_clock() + holder->rest_ns;", "", "core/pressure, lockstep"),
      ("each is asked for all that is short", "bytes -= ask(look, ticket, victim, bytes, false, deep);",
       "(void)ask(look, ticket, victim, bytes, false, deep);", "core/pressure, lockstep"),
      ("what one is asked for is asked for again for the next request", "wish(look, holder, -asked);", "", "lockstep"),
      ("holders are asked for what is guaranteed to them", "return deep ? movable :", "return deep || true ? movable :",
       "core/limits, lockstep"),
      ("holders of a higher priority are asked", "if (victim->limits.priority > ticket->priority) break;", "",
       "core/pressure, lockstep"),
      ("the highest priority is asked first", "? a->limits.priority < b->limits.priority",
       "? a->limits.priority > b->limits.priority", "core/pressure, lockstep"),
      ("the requester is asked before its equals", "if (victim == last) kept = victim; else if", "if",
       "core/pressure, lockstep"),
      ("wishes are not forgotten", "ticket->wish.parts[i].holder->wish = 0;", "(void)ticket;",
       "lockstep, sweep pressed"),
      ("one above its limit is not asked",
       "(void)ask(look, ticket, holder, minus(would_have(holder), holder->limits.limit_bytes), true, true);",
       "(void)holder;", "core/limits, lockstep, sweep smaller"))

plant("core/governor/asker.c",
      ("the function is not waited for", "(holder->running && moor__asked_here != holder)) {", "false) {",
       "core/undoing"),
      ("a holder goes, and what it was asked stays",
       "STAILQ_REMOVE(&queue->asks, &holder->ask, moor__ask, entry);", "", "core/callbacks"))

plant("core/governor/request.c",
      ("completions are not looked at before a no", "if (moor__poll(runtime) && moor__queue_try(runtime, wish, refusal))", "if (false)",
       "core/governor, sim pressure"),
      ("who was asked in vain is not told", "ticket->refusal.status = MOOR_NO_VICTIM;", "(void)0;",
       "core/tickets, lockstep"))

plant("core/governor/ticket.c",
      ("a ticket that was served keeps its bytes when it is cancelled",
       "*ret_was_served = ticket->state == MOOR__TICKET_SERVED;", "*ret_was_served = false;",
       "core/tickets, lockstep, sweep cancel"))

plant("core/governor/grant.c",
      ("a grant is overdrawn", "if (remaining < bytes)", "if (remaining == 0)",
       "core/governor, sim pressure"),
      ("a grant of another holder pays", "status = grant->holder == holder ?", "status = grant->holder ?",
       "core/governor, sim faults"),
      ("a claim that is not used is lost to its grant",
       "atomic_fetch_add_explicit(&claim->grant->remaining, claim->bytes, memory_order_relaxed);"
       " moor__grant_unpin(claim->grant);", "moor__grant_unpin(claim->grant);", "core/allocate, sim pressure"),
      ("what is reserved but not needed stays reserved",
       "claim->bytes -= actual; moor__claim_return(claim);", "claim->bytes = 0; moor__claim_return(claim);",
       "core/allocate"))

plant("core/governor/lease.c",
      ("a lease that shrinks keeps its bytes", "else if (before > bytes)", "else if (before > UINT64_MAX / 2)",
       "lockstep, sweep lease"),
      ("what is left of a grant that is committed stays reserved", "if (remaining > bytes) moor__unreserve", "if (false) moor__unreserve",
       "lockstep, sweep commit"))

plant("core/governor/authority.c",
      ("the first total that is told counts", "authority->capacity <= total_bytes)", "true)", "core/providers"),
      ("what providers of ours hold is external", "uint64_t ours = held_bytes +", "uint64_t ours = 0 * held_bytes +",
       "lockstep, sweep/external_cases"),
      ("a decision comes late and counts", "if (revision < current)", "if (revision == UINT64_MAX)",
       "core/limits, lockstep, sim governor"),
      ("the capacity grows and nobody is looked at",
       "MOOR_TRACE_CAPACITY, authority, NULL, capacity_bytes, 0); moor__relief_review(authority);",
       "MOOR_TRACE_CAPACITY, authority, NULL, capacity_bytes, 0);", "core/tickets, lockstep"))

plant("core/governor/holder.c",
      ("a holder with bytes goes", "if (!holder->has &&", "if (!reserved &&", "core/governor, sim lifecycle"),
      ("a limit is raised and nobody is looked at",
       "moor__relief_review(authority); if (ret_over_bytes)", "if (ret_over_bytes)", "core/tickets, lockstep"),
      ("a guarantee stays when its holder goes", "moor__account_guarantee(holder, 0);", "",
       "core/limits, lockstep, sweep guarantee, sim governor"),
      ("one that has something again still rests", "if (bytes == 0) return MOOR_OK;", "return MOOR_OK;",
       "core/pressure, lockstep"))

plant("core/memory/release.c",
      ("what is released is let go for nobody", "object->ticket = lets_go ? ticket : object->ticket;", "(void)ticket;",
       "core/pressure, lockstep"),
      ("what came into quarantine stays pending for its ticket",
       "moor__object_settled(object, MOOR__FATE_STUCK);", "", "core/pressure, lockstep"),
      ("a full device asks nobody",
       "made = moor__press_for_device(holder, bytes);", "made = false;",
       "core/pressure, sweep full"),
      ("what the provider said is lost", "moor__error_restore(&before); return made;", "return made;", "sweep full"))

plant("core/memory/transact.c",
      ("a failure names the first step whatever failed", "if (status && failed-- == 0)", "if (status && i == 0)",
       "core/transactions"))

plant("core/observe/stats.c",
      ("free bytes wrap", ".free_bytes = minus(authority->capacity, authority->has),",
       ".free_bytes = authority->capacity - authority->has,", "core/governor, sim sharing"),
      ("live bytes include what is pending",
       "return moor__figure(books, MOOR__LIVE) +", "return moor__figure(books, MOOR__PENDING) +"
       " moor__figure(books, MOOR__LIVE) +", "core/stats, sim memory"),
      ("holders say more than they have", "evictable += holder->evictable < live ? holder->evictable : live;",
       "evictable += holder->evictable;", "lockstep"))

plant("core/observe/device_stats.c",
      ("a contradiction is not told", "stats->inconsistent = odd;", "stats->inconsistent = odd && false;",
       "core/stats, sim faults"))

plant("core/observe/external.c",
      ("a device that says nothing counts as full", "if ((stats.valid & needed) != needed) return;", "",
       "core/stats"),
      ("what providers of ours hold is not counted", "sum->held += stats.held_bytes;", "(void)stats;",
       "lockstep, sweep/external_cases"))

# What the governor's model must see: no single call is wrong in a way that it says, the books add up, and somebody is
# asked, served, passed or refused that should not be.

# ---- the governor: what a request may take ----

vary("core/governor/admission.c",
     ("its own guarantee is no room for a holder",
      "uint64_t others = authority->claims - holder->claim + holder->has;", "uint64_t others = authority->claims;"),
     ("its own guarantee is in the way of what could ever fit",
      "set_aside(authority)), after - holder->wish);", "set_aside(authority)), 0);"),
     ("what is on its way is counted twice", "refusal->bytes = coming(wish, refusal);",
      "refusal->bytes = 2 * coming(wish, refusal);"),
     ("a turn bars what is guaranteed", "plus(holder->has, bytes) > holder->limits.guarantee_bytes; }",
      "plus(holder->has, bytes) > 0; }"),
     ("a turn bars those inside pressure functions",
      "return turn && turn != whose && !moor__is_inside_pressure(holder->authority->runtime) &&",
      "return turn && turn != whose &&"),
     ("a shortage that a turn makes is told as none", "obstacle == MOOR__OBSTACLE_TURN ? part->bytes :", ""))

vary("core/governor/authority.c",
     ("a holder may have what others hold of the device",
      "return there < authority->capacity ? there : authority->capacity;", "return authority->capacity;"),
     ("what hosts have leased is taken for external use",
      "held_bytes + moor__figure(&authority->total_books, MOOR__LEASED);", "held_bytes;"),
     ("one revision counts with two figures", "if (!same) return moor__fail(MOOR_REFUSED,",
      "if (false) return moor__fail(MOOR_REFUSED,"),
     ("what others do not hold any more is given to nobody", "if (heed)", "if (false && heed)"),
     ("bytes are set aside and nobody is asked for them",
      "if (status) return status; moor__relief_review(authority); return MOOR_OK;",
      "if (status) return status; return MOOR_OK;"),
     ("more is set aside than is not guaranteed", "if (bytes > room && bytes > authority->set_aside)",
      "if (false)"))

vary("core/governor/holder.c",
     ("more is guaranteed than there is", "if (bytes <= before || bytes <= room)", "if (true)"),
     ("who gets another function still rests",
      "holder->rest_ns = holder->rest_until_ns = 0; if (pressure || holder->running)",
      "if (pressure || holder->running)"),
     ("a guarantee goes with its holder, and to nobody",
      "moor__queue_look_locked(runtime->queue); moor__lock_release(&runtime->queue->lock); if (!status && !running)",
      "moor__lock_release(&runtime->queue->lock); if (!status && !running)"),
     ("a guarantee comes with its holder and nobody is asked for it",
      "*ret_holder = holder; moor__relief_review(authority);", "*ret_holder = holder;"),
     ("one can be asked from now on and is not", "if (!status) moor__relief_review(holder->authority);", ""),
     ("one that has something again is not asked", "if (heed) moor__queue_look_locked(runtime->queue);",
      "(void)heed;"),
     ("who removes its function inside it is forgotten",
      "if (pressure || holder->running) /* this thread is inside it: what it will let go is waited for all the same */",
      "if (pressure)"))

# ---- the governor: credit ----

vary("core/governor/queue.c",
     ("threads keep their credit when a ticket opens",
      "moor__credit_take_back(authority, MOOR__STRICT_TICKETS);", ""))

vary("core/governor/charge.c",
     ("threads get credit beyond a holder's limit", "inside ? 0 : own < pool ? own : pool);", "pool * 64);"))

vary("core/observe/stats.c",
     ("a snapshot leaves out what threads have",
      "moor__credit_take_back(authority, MOOR__STRICT_LOOK); }  static void look_away", "}  static void look_away"))

vary("core/governor/books.c",
     ("credit that comes back is lost", "moor__account_add(holder, MOOR__CREDIT, -moor__figure(", "(void)(-moor__figure("))

# ---- the governor: order and turns ----

vary("core/governor/queue.c",
     ("those who came later are passed", "ticket->arrival < arrival && share_pool", "ticket->arrival > arrival && share_pool"),
     ("requests of other pools are passed", "ticket->arrival < arrival && share_pool(&ticket->wish, wish))",
      "ticket->arrival < arrival)"),
     ("a turn begins one request too early", "if (ticket->passed < MOOR_PASSED_MAX ||",
      "if (ticket->passed + 1 < MOOR_PASSED_MAX ||"),
     ("a turn is given to one that its own limit holds back", "return !limited && can_ever(ticket);",
      "return can_ever(ticket);"),
     ("a turn is given to one that can never fit", "return !limited && can_ever(ticket);", "return !limited;"),
     ("one who had a turn gets the next at once", "|| now_ns < ticket->next_turn_ns)", ")"),
     ("turns are too short", "uint64_t turn_ns = (now_ns - next->opened_ns) / 2;",
      "uint64_t turn_ns = (now_ns - next->opened_ns) / 3;"),
     ("after a turn it is still passed as often", "ticket->turn_until_ns = 0; ticket->passed = 0;",
      "ticket->turn_until_ns = 0;"),
     ("two have a turn in one pool", "if (ticket->wish.pools[i]->turn) return false;", ""),
     ("those who stood back for a turn are not gone through again",
      "if (had_turn) next = TAILQ_FIRST(&queue->tickets);", ""),
     ("one turn follows upon another", "serve(queue, now_ns, !ended);", "serve(queue, now_ns, true);"),
     ("more than sixteen are served at once before one that waits", "serve(queue, now_ns, !ended);",
      "serve(queue, now_ns, false);"),
     ("turns are given with what is set aside",
      "struct moor_holder *here = stand_in(ticket); moor__wish_lock(&ticket->wish); bool can =",
      "struct moor_holder *here = moor__asked_here; moor__wish_lock(&ticket->wish); bool can ="),
     ("the end of a turn by cancelling is not seen", "if (had_turn) moor__queue_look_locked(queue);",
      "(void)had_turn;"),
     ("a ticket waits that fits as it is opened", "try_to_serve(queue, ticket)) {", "false) {"),
     ("its deadline is not waited for",
      "queue->due_ns = ticket->deadline_ns < queue->due_ns ? ticket->deadline_ns : queue->due_ns;", ""),
     ("tickets are served with what is set aside",
      "moor__asked_here = ticket->is_inside ? ticket->wish.parts[0].holder : NULL;",
      "moor__asked_here = ticket->wish.parts[0].holder;"))

# ---- the governor: asking ----

vary("core/governor/pressure.c",
     ("those who came last are asked first", ": a->created < b->created;", ": a->created > b->created;"),
     ("inside a pressure function, too, what is set aside is asked for",
      "uint64_t set_aside = ticket->is_inside ? 0 : authority->set_aside;",
      "uint64_t set_aside = authority->set_aside;"),
     ("a turn ends and nobody wakes",
      "if (ticket->turn_until_ns != 0) due = smaller(due, ticket->turn_until_ns);", ""),
     ("a turn can begin again and nobody wakes",
      "if (ticket->passed >= MOOR_PASSED_MAX && ticket->next_turn_ns > now_ns)"
      " due = smaller(due, ticket->next_turn_ns);", ""),
     ("one has rested and nobody wakes", "if (!holder->ask.ticket && holder->rest_until_ns > now_ns)"
      " due = smaller(due, holder->rest_until_ns);", ""),
     ("what is pending is asked for again", "struct look look = {queue, authority, now_ns, authority->claims_later,",
      "struct look look = {queue, authority, now_ns, authority->claims,"),
     ("what has been asked for is asked for again", "if (it->counts) wish(look, holder, -smaller(",
      "if (false) wish(look, holder, -smaller("),
     ("what is in quarantine is asked for",
      "uint64_t movable = minus(has, moor__figure(&holder->books, MOOR__QUARANTINED));", "uint64_t movable = has;"),
     ("who gives too little again rests no longer", "holder->rest_ns ? 2 * holder->rest_ns :",
      "holder->rest_ns ? holder->rest_ns :"),
     ("rest has no end", "holder->rest_ns = smaller(twice_ns, MOOR_REST_MAX_NS);", "holder->rest_ns = twice_ns;"),
     ("whatever was let go was enough", "if (smaller(it->let_go, given(holder)) >= it->bytes) {",
      "if (it->let_go > 0) {"),
     ("who takes again what it let go has given it", "if (smaller(it->let_go, given(holder)) >= it->bytes) {",
      "if (it->let_go >= it->bytes) {"),
     ("what a holder let go is counted twice", "holder->evicted_bytes += bytes;", "holder->evicted_bytes += 2 * bytes;"),
     ("its guarantee keeps a holder above its limit", "(void)ask(look, ticket, holder, own, true, true);",
      "(void)ask(look, ticket, holder, own, true, false);"),
     ("a request that does not wait asks on and on",
      "return ticket->is_brief && holder->answered > ticket->answers_before;", "return false;"),
     ("a request that does not wait does not count on what others ask for",
      "if (ticket->wish.pools[i] == holder->authority) return true;",
      "if (ticket->wish.pools[i] == holder->authority && holder->ask.ticket == name) return true;"),
     ("one that can never fit has others asked", "|| ticket->refusal.status == MOOR_NEVER_FITS)", ")"),
     ("nobody gives of what is guaranteed, though the pool is over its capacity",
      "(void)ask_victims(look, ticket, NULL, minus(look->has, authority->capacity), true);", ""),
     ("what is lent out of guarantees is not asked for",
      "(void)ask_victims(look, ticket, NULL, smaller(lent, borrowed), false);", ""),
     ("what is lent out of guarantees is not told",
      "return larger(beyond, smaller(lent, authority->claims - authority->guarantees));", "return beyond;"),
     ("what the pool lacks already is not asked for", "uint64_t pool = minus(plus(others, part->bytes),",
      "uint64_t pool = minus(larger(others, moor__authority_capacity(authority)) + part->bytes,"))

vary("core/governor/request.c",
     ("others are asked though enough is on its way", "bool comes = refusal.status == MOOR_PENDING ||",
      "bool comes = refusal.status == MOOR_CORRUPT ||"),
     ("a full device asks whoever needs it first", "ticket->requester = requester;", "ticket->requester = NULL;"),
     ("external use is not looked at again", "looks < wish->pool_count && refusal->external;",
      "looks < wish->pool_count && false;"))

vary("core/governor/pressure.c",
     ("bytes are back and expected at once",
      "moor_ticket name = count_let_go(holder, step.bytes, behind_fences); step.is_passing = true; /* the look is"
      " below */ moor__move(local, holder, step); moor__queue_look_locked(queue);",
      "step.is_passing = true; moor__move(local, holder, step); moor__queue_look_locked(queue);"
      " moor_ticket name = count_let_go(holder, step.bytes, behind_fences);"))

vary("core/memory/release.c",
     ("what is tried again is live on its way", "moor__unquarantine(holder, object->bytes); return; }",
      "moor__unquarantine(holder, object->bytes);"
      " moor__unpending(holder, moor__object_figure(object), object->bytes); }"))

# ---- handles, lives ----

plant("core/util/handles.c",
      ("a stale handle is accepted",
       "if (!(word & LIVE) || generation_of(word) != handle_generation(handle)) {", "if (!(word & LIVE)) {",
       "core/handles, sim streams"),
      ("a slot is used again under its old generation",
       "return; /* worn out: its handles would repeat */ atomic_store_explicit(&slot->word,"
       " (generation_of(word) + 1) << GENERATION_SHIFT, memory_order_release);",
       "return;", "core/handles, sim streams"),
      ("a handle of another runtime is accepted",
       "if (((handle >> TAG_SHIFT) & MOOR__TAG_MAX) != handles->tag)", "if (handle == UINT64_MAX)",
       "core/handles, sim faults"),
      ("a handle of another kind is accepted",
       "if (kind != (uint32_t)handles->kind)", "if (kind == MOOR__KIND_COUNT)",
       "core/handles, sim streams"),
      ("an object used again keeps what it was",
       "memset((char *)slot + sizeof *slot, 0, handles->slot_bytes - sizeof *slot);", "",
       "core/ranges, sim mixed"),
      ("a completion finds an object of another generation",
       "return !(word & LIVE) && generation_of(word) == handle_generation(handle) ? slot : NULL;",
       "return !(word & LIVE) ? slot : NULL;", "core/quarantine"))

plant("core/util/handles.h",
      ("a renewed handle is the old one", "((word >> MOOR__GENERATION_SHIFT) + 1) <<",
       "(word >> MOOR__GENERATION_SHIFT) <<", "core/writable"), unit="core/memory/writable.c")

plant("core/memory/runtime.c",
      ("a forked child uses the parent's runtime",
       "return moor__fail(MOOR_FORKED,", "return MOOR_OK; return moor__fail(MOOR_FORKED,", "core/fork"),
      ("a runtime ends with a holder alive", "if (authority->holder_count) status", "if (false) status",
       "core/providers, sim memory"))

plant("core/loader/provider.c",
      ("a NULL is written to", "if (!provider || !ret_device)", "if (!provider)", "core/arguments"))

plant("core/loader/unload.c",
      ("a provider is unloaded with one object alive", "if (alive == 0)", "if (alive <= 1)",
       "core/providers"))

plant("core/loader/load.c",
      ("a pool shrinks with a new provider and nobody is asked", "moor__devices_review_pools(provider);", ";",
       "core/limits"),
      ("a provider that may go on is freed", "if (!provider || provider->poisoned) return;", "if (!provider) return;",
       "core/providers"))

plant("core/loader/registry.c",
      ("a second load is not counted", "rival->loads++;", "", "loader/identity"),
      ("a second load may have other settings", "if (!moor__host_is_equal(provider, rival))", "if (!rival)",
       "loader/identity"))

# ---- the kit's queue ----

plant("abi/kit/queue.c",
      ("the first of two points is enough",
       "entry_drop_point(queue, entry); } entry->next = NULL;",
       "while (entry->points) entry_drop_point(queue, entry); } entry->next = NULL;",
       "kit/queue, sim streams"),
      ("a stream with one entry is forgotten",
       "if (stream->heap_count == 0 || stream->scan == queue->scan_count)",
       "if (stream->heap_count < 2 || stream->scan == queue->scan_count)", "kit/queue, sim sharing"),
      ("the heap is upside down",
       "while (hole > 0 && stream->heap[(hole - 1) / 2].value > value)",
       "while (hole > 0 && stream->heap[(hole - 1) / 2].value < value)", "kit/queue, sim faults"),
      ("an entry is due one value too early",
       "stream->heap[0].value <= stream->reached)", "stream->heap[0].value <= stream->reached + 1)",
       "kit/queue, sim pressure"),
      ("what a lost stream used is freed",
       "entry->status = stream->status;", "entry->points->value = 0;", "kit/queue"),
      ("a reap gives one more than there is room for",
       "while (*link && count < capacity)", "while (*link && count <= capacity)", "kit/queue"),
      ("a wake is not remembered", "queue->wakes++;", "", "kit/queue_wait"),
      ("completions carry the handle for a cookie",
       ".cookie = entry->release.cookie,", ".cookie = entry->release.handle,", "kit/queue, sim faults"),
      ("a failed free counts as done",
       "return failure_of(status); }  static struct moor_abi_completion entry_finish",
       "return MOOR_OK; }  static struct moor_abi_completion entry_finish", "kit/queue, sim faults"))

plant("abi/kit/handles.c",
      ("a stale handle of a provider is accepted",
       "if (!slot || !slot->record || handle_of(handles, slot) != handle) return fail_unknown",
       "if (!slot || !slot->record) return fail_unknown", "kit/handles"),
      ("what a call uses is taken away",
       "if (!status && slot->users > 0)", "if (!status && slot->users == CLAIMED)",
       "kit/handles"),
      ("what is being released is lent",
       "if (slot->users == CLAIMED) return moor_kit_fail(", "if (false) return moor_kit_fail(",
       "kit/handles"),
      ("a slot serves again under its old name",
       "if (++slot->generation != UINT32_MAX) {", "if (slot->generation != UINT32_MAX) {", "kit/handles"),
      ("an opaque address reaches past its record",
       "size_bytes > slot->span_bytes - offset_bytes) {", "false) {", "kit/handles"))

plant("abi/kit/provider.c",
      ("a setting above its bound is taken", "number < setting->least || number > setting->most",
       "number < setting->least", "kit/provider"),
      ("a setting that is no power of two is taken", "|| (is_power && !moor_kit_is_power_of_two(number)))", ")", "kit/provider"),
      ("an unknown word stands for the first one", "if (strcmp(text, setting->words[i]) == 0)", "if (*text)", "kit/provider"),
      ("a host without settings is read", "host->config ? host->config(host->user, setting->name) : NULL",
       "host->config(host->user, setting->name)", "kit/provider"),
      ("a newer minor is accepted", "|| negotiated_minor > MOOR_ABI_MINOR)", ")", "kit/provider"),
      ("an instance ends under its contexts", "if (contexts) return moor_kit_fail(", "if (false) return moor_kit_fail(",
       "kit/provider"),
      ("a context that does not open is counted", "if (status) { free(context); return status; }",
       "if (status) { free(context); kit->context_count++; return status; }", "kit/provider"),
      ("memory that the device uses is freed", "if (!kit->provider->stop || kit->provider->stop(instance)) free(instance);",
       "if (kit->provider->stop) (void)kit->provider->stop(instance); free(instance);", "kit/provider"))

plant("abi/kit/release.c",
      ("a stream of another instance is waited for",
       "if (kit_of(context_of(point.stream))->instance != kit->instance)", "if (!kit->instance)", "kit/release"),
      ("a value that was never recorded is waited for",
       "int32_t status = kit->ops->check_recorded(point.stream, point.value, error);", "int32_t status = MOOR_OK;",
       "kit/release"),
      ("a provider releases what it lacks", "if (!(kit->ops->capabilities & releases[release->kind].capability))",
       "if (!kit->ops->capabilities)", "kit/release"),
      ("a range goes with its granules", "status = moor_kit_range_check_empty(record, error);", "status = MOOR_OK;",
       "kit/release"),
      ("a refused range stays claimed", "if (status) moor_kit_handles_unclaim(kit->handles, release->handle); return status;",
       "return status;", "kit/release"),
      ("a failed free keeps the claim", "else moor_kit_handles_unclaim(kit->handles, release->handle);", "", "kit/release"),
      ("a failed part keeps the claim", "if (moor_kit_release_is_part(release->kind)) moor_kit_range_give_up(kit->handles, release); else",
       "if (!moor_kit_release_is_part(release->kind))", "kit/release"),
      ("a stream that is left is not counted", "if (!queued && !handles && !streams)", "if (!queued && !handles)",
       "kit/release"),
      ("domains share one count of bytes",
       "__atomic_add_fetch(&kit_of(context)->held_bytes[domain], bytes, __ATOMIC_RELAXED)",
       "__atomic_add_fetch(&kit_of(context)->held_bytes[0], bytes, __ATOMIC_RELAXED)", "kit/release"),
      ("streams of two instances wait for each other",
       "if (kit_of(context_of(stream))->instance == kit_of(context_of(other))->instance)", "if (stream && other)", "kit/release"),
      ("a reading of a range keeps it", "moor_kit_range_committed(found, offset_bytes, length_bytes); moor_kit_handles_put(handles, range);",
       "moor_kit_range_committed(found, offset_bytes, length_bytes);", "kit/release"),
      ("a budget is exceeded", "if (bytes > budget->total_bytes - used)", "if (used + bytes > budget->total_bytes)",
       "kit/release"))

plant("abi/kit/host.c",
      ("a thread of a provider takes signals", "pthread_sigmask(SIG_SETMASK, &all, &before);", "pthread_sigmask(0, NULL, &before);", "kit/host"),
      ("a caller keeps signals blocked", "pthread_sigmask(SIG_SETMASK, &before, NULL);", "(void)before;", "kit/host"),
      ("a wait loses its whole seconds", "(time_t)(longest_ns / second_ns + fraction_ns / second_ns)", "(time_t)(fraction_ns * 60 / second_ns)", "kit/host"),
      ("a past deadline wraps", "return now_ns < deadline_ns ? deadline_ns - now_ns : 0;", "return deadline_ns - now_ns;", "kit/host"),
      ("a fill writes words for halves", "((uint16_t *)memory)[i] = (uint16_t)pattern;", "((uint16_t *)memory)[i] = (uint8_t)pattern;", "kit/host"),
      ("a hole frees nothing", "if (result == 0) return MOOR_OK; return moor_kit_fail(error, MOOR_PROVIDER, errno,",
       "return MOOR_OK; return moor_kit_fail(error, MOOR_PROVIDER, errno,", "kit/host"),
      ("a memory file is made without room", "limit.rlim_cur < MOOR_KIT_FILE_BYTES", "limit.rlim_cur == 0", "kit/host"))

plant("abi/kit/limits.c",
      ("a limit above the own group is ignored", "*slash = '\\0'; } }  int moor_kit_limits_open", "break; } }  int moor_kit_limits_open",
       "kit/limits"),
      ("dirty cache counts as free", "(clean > dirty ? clean - dirty : 0)", "clean", "kit/limits"),
      ("throttling is no limit", "min64(read_number(level->limit), read_number(level->high))", "read_number(level->limit)",
       "kit/limits"))

plant("abi/kit/timeline.c",
      ("a value that was never recorded passes", "if (value <= recorded) return MOOR_OK;", "if (recorded || value) return MOOR_OK;",
       "kit/timeline"))

plant("abi/kit/range.c",
      ("a granule has two owners", "if (are_free) set(range, first, count, MOOR_KIT_GRANULE_BUSY);", "", "kit/range"),
      ("the first granule stands for all", "for (uint64_t i = first; i < first + count; i++) { if (range->states[i] != state)",
       "for (uint64_t i = first; i < first + 1; i++) { if (range->states[i] != state)", "kit/range"),
      ("two mappings become one", "i > first && state == MOOR_KIT_GRANULE_MAPPED", "state == MOOR_KIT_GRANULE_MAPPED",
       "kit/range"),
      ("a part of a mapping can go", "? moor_kit_range_mapping(range, first) == count : are_all",
       "? moor_kit_range_mapping(range, first) >= count : are_all", "kit/range"),
      ("what leaves can leave twice", "if (is_whole) set(range, first, count, state_during(release));", "", "kit/range"),
      ("a release that failed has left", "end_release(handles, release, state_before(release));",
       "end_release(handles, release, MOOR_KIT_GRANULE_FREE);", "kit/range"),
      ("what is queued for decommit is gone", "range->states[i] == MOOR_KIT_GRANULE_DECOMMITTING;", "false;", "kit/range"),
      ("a refused release keeps the range", "moor_kit_handles_put(handles, release->handle); return moor_kit_fail(",
       "return moor_kit_fail(", "kit/range"),
      ("a span that is refused keeps the range", "else moor_kit_handles_put(handles, handle);", "", "kit/range"),
      ("a range with something in it may go", "if (used_count == 0) return MOOR_OK;", "if (used_count < 3) return MOOR_OK;",
       "kit/range"),
      ("what is stuck counts as used", "range->used_count += state > MOOR_KIT_GRANULE_STUCK;",
       "range->used_count += state >= MOOR_KIT_GRANULE_STUCK;", "kit/range"),
      ("what others have is settled", "assert(are_all(range, first, count, MOOR_KIT_GRANULE_BUSY)); set(", "set(", "kit/range"))
