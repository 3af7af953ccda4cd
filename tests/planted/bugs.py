# SPDX-License-Identifier: MIT
"""The planted bugs, one or two lines each. The old text must be in the file exactly once; white space is folded. The
last field names the finders, each of which must find the bug: a suite, the governor's model in lockstep, the sweep
over some scenarios, the governor's stress test, and moor sim with a profile."""
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
       "moor__access_end(&access, !status);",
       "moor__access_end(&access, false);",
       "core/release, sim pressure"),
      ("a host function does not mark its views",
       "settle(accesses, begun, !status);",
       "settle(accesses, begun, false);",
       "core/streams, sim sharing"),
      ("the host's own work is not marked",
       "moor__access_end(&access, true);",
       "moor__access_end(&access, false);",
       "core/release, sim pressure"))

plant("core/memory/stream.c",
      ("a wait for another stream is dropped",
       "if (!status && fence->stream != stream)", "if (!status && !fence->stream)",
       "core/streams, sim faults"),
      ("a mark is covered one record too early",
       "while (recorded < value && !status)", "while (recorded + 1 < value && !status)",
       "core/streams, sim pressure"),
      ("a mark is the last record before the work",
       "atomic_load_explicit(&stream->started, memory_order_seq_cst) + 1;",
       "atomic_load_explicit(&stream->started, memory_order_seq_cst);", "core/release, sim pressure"),
      ("a stream is destroyed before its frees",
       "provider->streams.epoch < stream->drained_epoch + 2",
       "provider->streams.epoch < stream->drained_epoch",
       "core/streams, sim lifecycle"),
      ("the epoch advances during a call in flight",
       "step < 2 && provider->streams.in_flight[(provider->streams.epoch + 1) & 1] == 0;",
       "step < 2;",
       "core/streams, sim lifecycle"),
      ("a stream is done while its work runs",
       "moor__stream_passed(stream, atomic_load_explicit(&stream->recorded, memory_order_acquire));",
       "true;", "core/streams, sim sharing"),
      ("a fence that was never recorded is waited for",
       "fence->value > atomic_load_explicit(&fence->stream->recorded, memory_order_acquire)",
       "fence->value == UINT64_MAX", "core/streams"))

plant("core/memory/stream.c",
      ("a record that does not count up counts", "if (value <= before)", "if (value < before)", "core/streams"),
      ("there may be any number of streams",
       "bool has_room = provider->streams.count < MOOR_LIMIT_STREAMS;",
       "bool has_room = true;",
       "core/streams"),
      ("a stream that cannot be destroyed stays counted",
       "moor__log(stream->device->provider->runtime, MOOR_ABI_LOG_ERROR, \"%s\", moor__pending_error()->text);"
       " moor__count(stream->device, MOOR__COUNT_STREAM, -1);",
       "moor__log(stream->device->provider->runtime, MOOR_ABI_LOG_ERROR, \"%s\", moor__pending_error()->text);"
       " else moor__count(stream->device, MOOR__COUNT_STREAM, -1);",
       "core/streams"))

plant("core/memory/uses.c",
      ("uses of one stream merge because of the uses of others",
       "same_stream += all[i].stream == newest.stream &&", "same_stream += all[i].stream != newest.stream &&",
       "core/streams"),
      ("newer work of one stream drops the uses of other streams",
       "if (use->stream != newest.stream || use->value == MOOR__USE_SUBMITTING) continue; bool covered",
       "if (use->value == MOOR__USE_SUBMITTING) continue; bool covered", "core/streams, sim streams"),
      ("merged uses keep the earlier value",
       "merged->value = moor__max(use->value, merged->value);",
       "merged->value = moor__min(use->value, merged->value);",
       "core/streams, sim pressure"),
      ("merged uses lose their upper part",
       "merged->high = moor__max(use->high, merged->high);",
       "",
       "core/streams"),
      ("a use is forgotten one value too early",
       "moor__stream_passed(use->stream, use->value)) drop(uses, i);",
       "moor__stream_passed(use->stream, use->value - 1)) drop(uses, i);",
       "core/release, sim pressure"),
      ("a use that begins inside the part is overlooked",
       "return use->low < high && low < use->high;", "return use->low <= low && low < use->high;",
       "core/ranges, sim pressure"))

plant("core/memory/release.c",
      ("a pending segment counts as evicted again",
       "!object->ticket && !object->is_pending_by_mappings);",
       "!object->ticket);",
       "core/callbacks"),
      ("a release does not name the last value",
       "if (moor__stream_passed(point->stream, point->value)) return MOOR_OK;",
       "if (moor__stream_passed(point->stream, point->value - 1)) return MOOR_OK;",
       "core/release, sim pressure"),
      ("a completion is dropped", "for (uint32_t i = 0; i < count; i++) complete(",
       "for (uint32_t i = 0; i + 1 < count; i++) complete(", "core/release, sim faults"),
      ("cookies are mixed up",
       "release.cookie = moor__object_handle(object);",
       "release.cookie = moor__object_handle(object) ^ 1;",
       "core/release, sim faults"),
      ("a completion is believed twice",
       "return object && moor__object_end_leaving(object) ? object : NULL;",
       "if (object) (void)moor__object_end_leaving(object); return object;",
       "core/quarantine"),
      ("a failed release counts as done",
       "if (completion->status == MOOR_OK) {", "if (completion->status <= MOOR_OK) {",
       "core/quarantine, sim faults"),
      ("a refused release stays pending",
       "moor__object_from_pending(object); moor__object_settle(object, MOOR__FATE_KEPT);",
       "moor__object_settle(object, MOOR__FATE_KEPT);",
       "core/quarantine, sim faults"))

plant("core/memory/buffer.c",
      ("a buffer leaves without its last uses",
       "moor__release_or_quarantine(object, release, points, count);",
       "moor__release_or_quarantine(object, release, points, 0);",
       "core/release, sim pressure"),
      ("the handle is written before the provider is asked",
       "else status = moor__charge_and_make(",
       "else *ret_buffer = moor__object_handle(&buffer->memory.object); if (!status) status = moor__charge_and_make(",
       "core/allocate"),
      ("a size that wraps with its alignment is let through",
       "if (size_bytes > UINT64_MAX - alignment)", "if (size_bytes == 0)", "core/allocate"),
      ("a charge for wrapped memory is not refunded",
       "if (buffer->leased_bytes) moor__refund_leased", "if (false) moor__refund_leased",
       "core/wrap, sim lifecycle"),
      ("wrapped memory that is not charged keeps its room",
       "if (flags & MOOR_BUFFER_CHARGE) status = moor__reservation_take",
       "if (flags + 1) status = moor__reservation_take",
       "core/wrap, sim lifecycle"))

# ---- ranges, segments, copy on write ----

plant("core/memory/part.c",
      ("a decommit does not wait for work",
       "status = moor__part_submit(part, false); if (status) {",
       "status = moor__part_submit(part, true); if (status) {",
       "core/ranges, sim pressure"),
      ("leaving granules are free already",
       "moor__range_set(range, first, count, MOOR__GRANULE_LEAVING); range->parts_out++; }",
       "moor__range_set(range, first, count, MOOR__GRANULE_FREE); range->parts_out++; }",
       "core/ranges, sim memory"),
      ("a refused decommit loses its granules",
       "moor__part_publish(part, part->segment, moor__granule_state(head) == MOOR__GRANULE_MAPPED_WRITE);",
       "if (part->segment) moor__part_publish(part, part->segment, moor__granule_state(head) =="
       " MOOR__GRANULE_MAPPED_WRITE); else moor__object_free(&part->object);",
       "core/quarantine, sim faults"),
      ("a decommit under a submission is let through",
       "moor_status status = moor__range_expect_unused(range, first, count);",
       "moor_status status = MOOR_OK;",
       "core/ranges"),
      ("a decommit pends nothing",
       "part->object.bytes = part->object.requested_bytes = count * range->granule_bytes;",
       "",
       "core/ranges, sim memory"))

plant("core/memory/range.c",
      ("a range without a handle is accepted", "if (made.handle == 0 ||", "if (made.handle == 1 ||", "core/handles"),
      ("a range that is too large wraps",
       "if (size_bytes > UINT64_MAX - alignment)", "if (size_bytes == 0)", "core/allocate"),
      ("leaving addresses are not reaped before a shortage",
       "moor__poll(moor__runtime_of(binding));", "(void)0;", "core/ranges"),
      ("a failed reserve keeps its slot",
       "else moor__object_free(&range->memory.object);",
       "else (void)0;",
       "core/ranges, sim lifecycle"))

plant("core/memory/segment.c",
      ("bytes of a segment that stay count as evicted",
       "moor__object_settle(&segment->object, MOOR__FATE_KEPT);", ";", "core/pressure"),
      ("sealing does not wait for the writers",
       "status = moor__memory_await(&range->memory, low, low + segment->size_bytes, deadline_ns);"
       " if (!status) status =",
       "(void)deadline_ns; (void)low; status =", "core/segments, sim streams"),
      ("sealing does not make the mapping read-only",
       "status = moor__segment_protect(segment, range, first, MOOR_ABI_ACCESS_READ);",
       "status = MOOR_OK;",
       "core/segments"),
      ("a segment goes with its handle, mapped or not",
       "segment->owners--; end_change(segment); } void moor__segment_count_mappings",
       "bool last = --segment->owners <= 1; struct change change = update_line(segment);"
       " moor__lock_release(&segment->lock); trace(change); if (last) submit(&segment->object); } void"
       " moor__segment_count_mappings",
       "core/segments, sim mixed"),
      ("a segment that only leaving mappings keep is not pending",
       "return segment->stuck ? MOOR__QUARANTINED : MOOR__PENDING;",
       "return segment->stuck ? MOOR__QUARANTINED : MOOR__SHARED;",
       "core/quarantine, sim sharing"),
      ("a segment that a stuck mapping keeps is pending",
       "return segment->stuck ? MOOR__QUARANTINED : MOOR__PENDING;",
       "return MOOR__PENDING;", "core/quarantine"))

plant("core/memory/writable.c",
      ("copy on write writes in place though others share",
       "bool alone = old->owners == 1;", "bool alone = old->owners <= 2;",
       "core/writable, sim sharing"),
      ("copy on write does not copy",
       "status = moor__copy_submit(stream, exchange->window->memory.address, is_device,"
       " exchange->range->memory.address + low, is_device, size);",
       "status = is_device ? MOOR_OK : MOOR_OK;",
       "core/writable"),
      ("copy on write copies from the start of the range",
       "exchange->range->memory.address + low,", "exchange->range->memory.address,",
       "core/writable, sim sharing"),
      ("copy on write copies the first granule alone",
       "is_device, size);", "is_device, exchange->range->granule_bytes);", "core/writable"),
      ("copy on write does not mark its source",
       "moor__access_settle(&source, !status);",
       "moor__access_settle(&source, false);",
       "core/writable, sim faults"),
      ("a copy on write that fails keeps the granules busy",
       "if (exchange->mapping == HELD) restore(exchange, HELD);",
       "",
       "core/writable, sim sharing"),
      ("granules that could not be put back stay busy",
       "moor__range_set(range, exchange->first, exchange->count, MOOR__GRANULE_FREE);", "", "core/writable"),
      ("writing in place leaves the mapping read-only",
       "moor__segment_protect(old, exchange->range, exchange->first, MOOR_ABI_ACCESS_READ_WRITE);",
       "MOOR_OK;",
       "core/writable"))

plant("core/memory/transact.c",
      ("the undo leaves out the first step",
       "for (size_t i = count; i-- > 0;) undo(&works[i]);",
       "for (size_t i = count; i-- > 1;) undo(&works[i]);",
       "core/transactions, sim sharing"),
      ("steps are undone in the order they were done",
       "for (size_t i = count; i-- > 0;) undo(&works[i]);",
       "for (size_t i = 0; i < count; i++) undo(&works[i]);",
       "core/transactions"),
      ("a failed step keeps its reservation",
       "if (work->stage == MOOR__STAGE_RESERVED) moor__reservation_return(&work->reservation);",
       "",
       "core/transactions, sim faults"))

plant("core/memory/access.c",
      ("a view beyond its owner is let through",
       "view->address < base || view->address + view->size_bytes > base + size_bytes", "view->address < base",
       "core/copies, sim streams"),
      ("offset and size of a part that wrap are let through",
       "if (offset_bytes > UINT64_MAX - size_bytes)", "if (size_bytes == UINT64_MAX)",
       "core/copies, sim memory"),
      ("a read-only mapping is written",
       "if (!readable || (write && state == MOOR__GRANULE_MAPPED_READ))", "(void)write; if (!readable)",
       "core/segments, sim memory"),
      ("a granule that is not backed is copied",
       "bool readable = state == MOOR__GRANULE_COMMITTED || moor__granule_is_mapped(range->granules[i]);",
       "bool readable = true; if (!moor__granule_is_mapped(range->granules[i])) state = MOOR__GRANULE_COMMITTED;",
       "core/ranges, sim lifecycle"))

# ---- the books ----

plant("core/memory/release.c",
      ("pending bytes are counted twice",
       "moor__object_to_pending(object, !object->ticket && !object->is_pending_by_mappings);",
       "moor__object_to_pending(object, true); moor__object_to_pending(object, true);",
       "core/release, sim memory"),
      ("quarantine counts as pending",
       "moor__quarantine(binding->holder, object->bytes); moor__object_settle",
       "moor__object_settle",
       "core/quarantine, sim faults"),
      ("quarantined bytes are refunded",
       "moor__quarantine(binding->holder, object->bytes); moor__object_settle",
       "moor__refund(binding->holder, object->bytes, 0, 0); moor__object_settle",
       "core/quarantine, sim faults"),
      ("quarantine keeps the grant that it was drawn from",
       "moor__object_restore_grant(object, 0);",
       "if (object->is_retried) moor__object_restore_grant(object, 0);",
       "core/transactions"),
      ("quarantine is not listed",
       "device->releases.quarantine = object; moor__lock_release",
       "moor__lock_release",
       "core/quarantine, sim faults"))

plant("core/memory/binding.c",
      ("quarantine is not tried again",
       "moor__quarantine_retry(binding->device);", "", "core/quarantine, sim faults"),
      ("lost bytes are not written off",
       "uint64_t lost = atomic_load_explicit(&binding->lost_bytes, memory_order_relaxed);", "uint64_t lost = 0;",
       "core/quarantine"),
      ("a binding is closed over pending objects",
       "if (count == 0) return MOOR_OK;",
       "if (live == 0) return MOOR_OK;",
       "core/governor, sim faults"),
      ("a binding does not keep its provider",
       "moor__count(device, MOOR__COUNT_BINDING, 1);", "", "core/providers, sim faults"))

plant("core/governor/admission.c",
      ("pending bytes count as never returning",
       "uint64_t others = authority->sums.commitments_later - holder->commitment_later + "
       "moor__has_later(holder);",
       "uint64_t others = authority->sums.commitments - holder->commitment + holder->has;", "core/governor, sim pressure"),
      ("a holder's limit is ignored", "part->bytes > own ? MOOR__OBSTACLE_LIMIT",
       "false ? MOOR__OBSTACLE_LIMIT", "core/governor, lockstep, sim mixed"),
      ("room wraps when the capacity shrinks below the held bytes",
       "return moor__sub_sat(moor__authority_capacity(authority), moor__add_sat(others, "
       "reserve_of(authority, is_inside))); }  static uint64_t pool_room_later",
       "return moor__authority_capacity(authority) - others - reserve_of(authority, is_inside); } static "
       "uint64_t pool_room_later", "core/governor, sim memory"),
      ("a request that can never fit is over budget", "*refusal = (struct moor__refusal){ .status = MOOR_NEVER_FITS,",
       "*refusal = (struct moor__refusal){ .status = MOOR_OVER_BUDGET,", "core/governor, sim memory"),
      ("an unused guarantee is lent",
       "uint64_t others = authority->sums.commitments - holder->commitment + holder->has;",
       "uint64_t others = authority->sums.has;", "core/limits, lockstep, sim governor"),
      ("the emergency reserve serves every request", "return is_inside ? 0 : authority->limits.set_aside;",
       "return is_inside ? 0 : 0 * authority->limits.set_aside;", "core/limits, lockstep, sim governor"),
      ("the planned bytes of a request stay in a pool", "set->pools[i]->planned_bytes = 0;",
       "(void)set;", "core/tickets, lockstep, sweep ticket"),
      ("a request that does not fit keeps its first part", "for (size_t i = set->count; !now && i-- > 0;)",
       "for (size_t i = set->count; !now && i-- > 1;)", "core/tickets, lockstep"),
      ("a request is pending although only a part of it will fit", "later &= obstacle != MOOR__OBSTACLE_TURN &&",
       "later = obstacle != MOOR__OBSTACLE_TURN &&", "lockstep, sim governor"),
      ("an exclusive turn gives no precedence", "return turn && turn != ticket &&",
       "return false && turn != ticket &&", "core/turns, lockstep"),
      ("credit is not taken back before a refusal", "moor__credit_take_back(set->pools[i], MOOR__STRICT_TIGHT);",
       "(void)set;", "lockstep, sim pressure"))

plant("core/governor/schedule.c",
      ("no waiting request counts as passed", "ticket->place.passed++;", "(void)ticket;", "core/turns, lockstep"),
      ("a turn does not end", "if (ticket->place.turn_until_ns == 0 || (now_ns <",
       "if (ticket->place.turn_until_ns == 0 || (now_ns / 2 <", "core/turns, lockstep"),
      ("a turn outlives its ticket",
       "if (authority->waiting.turn == ticket) authority->waiting.turn = NULL;", "(void)ticket;",
       "core/turns, lockstep"),
      ("a ticket is not ended at its deadline", "&& now_ns >= ticket->demand.deadline_ns)",
       "&& now_ns / 2 >= ticket->demand.deadline_ns)", "core/tickets, lockstep"),
      ("reclaim does not end", "else if (ticket->demand.kind == MOOR__TICKET_RECLAIM &&",
       "else if (ticket->demand.kind == MOOR__TICKET_RECLAIM && false &&",
       "core/limits, lockstep, sweep smaller"),
      ("requests are served in order of arrival, without priorities",
       "while (after && after->demand.priority < ticket->demand.priority)", "while (false)",
       "core/tickets, lockstep"))

plant("core/governor/queue.c",
      ("a request without a deadline does not count as passing", "moor__schedule_count_pass(schedule, set, UINT64_MAX);", "",
       "core/turns, lockstep"),
      ("a request takes bytes without a scan of the queue", "if (granted && schedule->count) {",
       "if (false && schedule->count) {", "core/turns, lockstep"),
      ("evicted bytes are not counted for the ticket", "tally->evicted_bytes += bytes;", "(void)bytes;",
       "core/pressure, lockstep"),
      ("returned bytes stay pending for their ticket",
       "tally->pending_bytes = moor__sub_sat(tally->pending_bytes, bytes);", "(void)bytes;",
       "core/pressure, lockstep"),
      ("a holder that evicted too little does not cool down",
       "victim->cool_until_ns = governor->port.clock() + victim->cool_down_ns;", "",
       "core/pressure, lockstep"))

plant("core/governor/charge.c",
      ("returned bytes do not serve waiting requests", "if (scans) moor__queue_scan(",
       "if (false && scans) moor__queue_scan(", "core/tickets, lockstep, sim governor"),
      ("a release is not traced",
       "moor__trace(authority->runtime, transition.event, authority, holder, step.bytes, 0);",
       "if (kind != MOOR__RELEASE) moor__trace(authority->runtime, transition.event, authority, "
       "holder, step.bytes, 0);", "core/trace"),
      ("a returned reservation is not traced",
       "moor__trace(authority->runtime, transition.event, authority, holder, step.bytes, 0);",
       "if (kind != MOOR__RETURN) moor__trace(authority->runtime, transition.event, authority, "
       "holder, step.bytes, 0);", "core/trace, lockstep, sweep allocate"),
      ("quarantine is not traced",
       "moor__trace(authority->runtime, transition.event, authority, holder, step.bytes, 0);",
       "if (kind != MOOR__QUARANTINE) moor__trace(authority->runtime, transition.event, authority, "
       "holder, step.bytes, 0);", "sweep evict"))

plant("core/governor/account.c",
      ("the later commitments are not updated",
       "sums->commitments_later += later - holder->commitment_later;", "",
       "core/pressure, lockstep, sweep pressed, sim governor"),
      ("a lowered guarantee is not counted",
       "holder->limits.guarantee_bytes = bytes; update_commitments(holder);",
       "holder->limits.guarantee_bytes = bytes;", "core/limits, lockstep"),
      ("a thread account is emptied twice",
       "atomic_store_explicit(&lines->line[line], 0, memory_order_relaxed);", "",
       "core/stats, sweep grant, stress"),
      ("the credit of a thread account is lost with it",
       "atomic_store_explicit(&lines->line[line], 0, memory_order_relaxed); } free_credit(holder);",
       "atomic_store_explicit(&lines->line[line], 0, memory_order_relaxed); }",
       "lockstep, sweep grant, sim governor"),
      ("the peak falls again", "if (charged > (int64_t)*peak)", "if (charged >= 0)",
       "core/stats, sim memory"),
      ("live bytes include pending bytes", "return moor__account_get(account, MOOR__LIVE) +",
       "return moor__account_get(account, MOOR__PENDING) + moor__account_get(account, MOOR__LIVE) +",
       "core/release, sim memory"))

plant("core/governor/credit.h",
      ("more credit is granted than there is room",
       "? moor__account_get(&thread_account->account, MOOR__CREDIT) >= step->bytes",
       "? moor__account_get(&thread_account->account, MOOR__CREDIT) > 0", "core/credit, lockstep"), unit="core/governor/grant.c")

plant("core/governor/charge.h",
      ("bytes that return to a grant are traced as free", "{MOOR__PENDING, MOOR__RESERVED, MOOR_TRACE_RESTORE}",
       "{MOOR__PENDING, MOOR__RESERVED, MOOR_TRACE_REFUND}", "core/trace, sweep transaction"), unit="core/governor/charge.c")

plant("core/governor/plan.c",
      ("a pressure request counts beyond the patience",
       "request->is_expected &= plan->now_ns - request->since_ns < plan->schedule->patience_ns;", "",
       "core/callbacks"),
      ("each victim is asked for the whole shortage", "bytes -= ask(plan, ticket, victim, bytes, false, deep);",
       "(void)ask(plan, ticket, victim, bytes, false, deep);", "core/pressure, lockstep"),
      ("bytes under request are requested again for the next ticket", "plan_change(plan, holder, -asked);",
       "", "lockstep"),
      ("a holder whose pressure request is withdrawn is asked meanwhile",
       "has_answered(ticket, holder) || !victim->is_listed) {", "has_answered(ticket, holder)) {",
       "core/pressure"),
      ("holders are asked for their guaranteed bytes", "return deep ? movable :",
       "return deep || true ? movable :", "core/limits, lockstep"),
      ("holders of a higher priority are asked",
       "if (victim->limits.priority > ticket->demand.priority) break;", "", "core/pressure, lockstep"),
      ("the highest priority is asked first", "? a->limits.priority < b->limits.priority",
       "? a->limits.priority > b->limits.priority", "core/pressure, lockstep"),
      ("the requester is asked before its equals", "if (victim == last) kept = victim; else if", "if",
       "core/pressure, lockstep"),
      ("planned bytes are not removed", "ticket->demand.set.parts[i].holder->planned_bytes = 0;", "(void)ticket;",
       "lockstep, sweep pressed"),
      ("a holder above its limit is not asked",
       "(void)ask(plan, ticket, holder, moor__sub_sat(would_have(holder), holder->limits.limit_bytes), "
       "true, true);", "(void)holder;", "core/limits, lockstep, sweep smaller"))

plant("core/governor/worker.c",
      ("a removed pressure function is not waited for", "(victim->is_running && moor__pressured_holder != holder)) {",
       "false) {", "core/undoing"),
      ("a destroyed holder keeps its pressure request",
       "STAILQ_REMOVE(&queue->schedule.requests, holder, moor_holder, victim.request.entry);", "",
       "core/callbacks"))

plant("core/governor/request.c",
      ("a request ends although it is asking again",
       "if (ticket->state != MOOR__TICKET_OPEN || !ticket->pressure.is_answered ||",
       "if ((ticket->state != MOOR__TICKET_OPEN && !ticket->pressure.is_answered) ||", "core/pressure"),
      ("completions are not reaped before a refusal",
       "if (port->reap(governor->runtime) && moor__queue_try(governor, set, refusal))", "if (false)",
       "core/governor, sim pressure"),
      ("a vain pressure request is not reported", "ticket->refusal.status = MOOR_NO_VICTIM;", "(void)0;",
       "core/tickets, lockstep"))

plant("core/governor/ticket.c",
      ("a served ticket keeps its bytes when it is cancelled",
       "bool was_served = ticket->state == MOOR__TICKET_SERVED;", "bool was_served = false;",
       "core/tickets, lockstep, sweep cancel"))

plant("core/governor/grant.c",
      ("a grant is overdrawn", "if (remaining < bytes)", "if (remaining == 0)",
       "core/governor, sim pressure"))

plant("core/governor/reservation.c",
      ("a grant of another holder pays", "status = grant->holder == holder ?", "status = grant->holder ?",
       "core/governor, sim faults"),
      ("a reservation that is not used is lost to its grant",
       "moor__grant_restore(reservation->grant, reservation->bytes);",
       "moor__grant_restore(reservation->grant, 0);", "core/allocate, sim pressure"),
      ("unused bytes of a reservation stay reserved",
       "reservation->bytes -= actual - exceed; moor__reservation_return(reservation);",
       "reservation->bytes = 0; moor__reservation_return(reservation);", "core/allocate"))

plant("core/governor/lease.c",
      ("a lease that shrinks keeps its bytes", "else if (before > bytes)",
       "else if (before > UINT64_MAX / 2)", "lockstep, sweep lease"),
      ("the rest of a committed grant stays reserved", "if (remaining > bytes) moor__unreserve",
       "if (false) moor__unreserve", "lockstep, sweep commit"))

plant("core/governor/authority.c",
      ("the first reported total counts", "*total_bytes < limits->capacity)) {", "false)) {",
       "core/providers"),
      ("bytes held by the runtime's providers count as external", "uint64_t ours = held_bytes +",
       "uint64_t ours = 0 * held_bytes +", "lockstep, sweep/external_cases"),
      ("a stale decision counts", "if (revision < current)", "if (revision == UINT64_MAX)",
       "core/limits, lockstep, sim governor"),
      ("the capacity grows without a scan of the queue",
       "MOOR_TRACE_CAPACITY, authority, NULL, capacity_bytes, 0); moor__reclaim_review(authority);",
       "MOOR_TRACE_CAPACITY, authority, NULL, capacity_bytes, 0);", "core/tickets, lockstep"))

plant("core/governor/holder.c",
      ("a holder with bytes can be destroyed", "if (!holder->has &&", "if (!reserved &&", "core/governor, sim lifecycle"),
      ("a limit is raised without a scan of the queue", "moor__reclaim_review(authority); if (ret_over_bytes)",
       "if (ret_over_bytes)", "core/tickets, lockstep"),
      ("a guarantee outlives its holder", "moor__holder_account_guarantee(holder, 0);", "",
       "core/limits, lockstep, sweep guarantee, sim governor"),
      ("a holder with evictable bytes again still cools down", "if (bytes == 0) return MOOR_OK;", "return MOOR_OK;",
       "core/pressure, lockstep"))

plant("core/governor/stats.c",
      ("free bytes wrap", ".free_bytes = moor__sub_sat(authority->limits.capacity, sums->has),",
       ".free_bytes = authority->limits.capacity - sums->has,", "core/governor, sim sharing"),
      ("holders report more evictable bytes than they have", "evictable += evictable_of(holder);",
       "evictable += holder->settings.evictable;", "lockstep"))

plant("core/loader/device_stats.c",
      ("figures that a device does not know are reported", "raw.valid & MOOR_ABI_STAT_TOTAL ?",
       "raw.valid | MOOR_ABI_STAT_TOTAL ?", "core/stats"),
      ("a contradiction is not reported", "stats->inconsistent = odd;", "stats->inconsistent = odd && false;",
       "core/stats, sim faults"))

plant("core/loader/external.c",
      ("a device without figures counts as full", "if ((stats.valid & needed) != needed) return;", "",
       "core/stats"),
      ("bytes held by the runtime's providers are not counted", "sum->held += stats.held_bytes;", "(void)stats;",
       "lockstep, sweep/external_cases"))

plant("core/governor/governor.c",
      ("a runtime ends with a holder alive", "if (authority->holder_count) status", "if (false) status",
       "core/providers, sim memory"))

plant("core/memory/release.c",
      ("quarantined bytes stay pending for their ticket",
       "moor__object_settle(object, MOOR__FATE_STUCK);",
       "",
       "core/pressure, lockstep"))

plant("core/memory/transact.c",
      ("a failure always names the first step", "if (status && failed-- == 0)", "if (status && i == 0)",
       "core/transactions"))


# Bugs for the governor's model: no single call returns a visibly wrong result, and the accounts add up, but a holder is
# asked, or a request is served, passed or refused, against the specification.

# ---- the governor: the largest request ----

vary("core/governor/admission.c",
     ("a holder's own guarantee is no room for it",
      "uint64_t others = authority->sums.commitments - holder->commitment + holder->has;",
      "uint64_t others = authority->sums.commitments;"),
     ("a holder's own guarantee reduces its largest request",
      "all = moor__sub_sat(all, after - holder->planned_bytes);", "all = moor__sub_sat(all, 0 * after);"),
     ("expected bytes are counted twice", "refusal->bytes = pending_where_missing(set, refusal);",
      "refusal->bytes = 2 * pending_where_missing(set, refusal);"),
     ("a turn bars guaranteed bytes",
      "moor__add_sat(holder->has, part->bytes) > holder->limits.guarantee_bytes; }",
      "moor__add_sat(holder->has, part->bytes) > 0; }"),
     ("a turn bars those inside pressure functions", "return turn && turn != ticket && !set->is_inside &&",
      "return turn && turn != ticket && (set || true) &&"),
     ("a shortage caused by a turn is reported as none", "obstacle == MOOR__OBSTACLE_TURN ? part->bytes :", ""))

vary("core/governor/objects.h",
     ("a holder may have bytes of external use",
      "return moor__min(authority->external.total_bytes - authority->external.bytes, capacity);",
      "return capacity;"), unit="core/governor/admission.c")

vary("core/governor/authority.c",
     ("leased bytes count as external use",
      "held_bytes + moor__account_get(&authority->sums.account, MOOR__LEASED);", "held_bytes;"),
     ("one revision counts with two lines", "if (!same) return moor__fail(MOOR_REFUSED,",
      "if (false) return moor__fail(MOOR_REFUSED,"),
     ("bytes that leave external use serve no request", "if (scans)", "if (false && scans)"),
     ("the emergency reserve grows without a pressure request",
      "if (status) return moor__leave(status); moor__reclaim_review(authority); return MOOR_OK;",
      "if (status) return moor__leave(status); return MOOR_OK;"),
     ("the emergency reserve exceeds the bytes without a guarantee", "if (bytes > room && bytes > authority->limits.set_aside)",
      "if (false)"))

vary("core/governor/holder.c",
     ("the guarantees exceed the capacity", "if (bytes <= before || bytes <= room)", "if (true)"),
     ("a holder with a new pressure function still cools down", "victim->cool_down_ns = victim->cool_until_ns = 0;", ""),
     ("the guarantee of a destroyed holder serves no request",
      "moor__queue_scan_locked(governor); moor__lock_release(&queue->lock); if (!status && !running)",
      "moor__lock_release(&queue->lock); if (!status && !running)"),
     ("a new guarantee causes no pressure request",
      "*ret_holder = holder; moor__reclaim_review(authority);", "*ret_holder = holder;"),
     ("a holder with its first pressure function is not asked", "if (!status) moor__reclaim_review(holder->authority);", ""),
     ("a holder with evictable bytes again is not asked", "if (scans) moor__queue_scan_locked(governor);",
      "(void)scans;"),
     ("a holder that removes its running function is forgotten", "if (pressure || victim->is_running)",
      "if (pressure)"))

vary("core/governor/schedule.c",
     ("threads keep their credit when a ticket opens",
      "moor__credit_take_back(authority, MOOR__STRICT_TICKETS);", ""),
     ("later requests count as passed", "ticket->place.arrival < arrival && share_pool",
      "ticket->place.arrival > arrival && share_pool"),
     ("requests of other pools count as passed",
      "ticket->place.arrival < arrival && share_pool(&ticket->demand.set, set))",
      "ticket->place.arrival < arrival)"),
     ("a turn begins one request too early", "if (place->passed < MOOR_PASSED_MAX ||",
      "if (place->passed + 1 < MOOR_PASSED_MAX ||"),
     ("a request below its own limit gets a turn", 
      "return !moor__request_set_is_limited(set) && can_ever(ticket);", "return can_ever(ticket);"),
     ("a request that can never fit gets a turn", 
      "return !moor__request_set_is_limited(set) && can_ever(ticket);",
      "return !moor__request_set_is_limited(set);"),
     ("a request gets its next turn at once", "|| now_ns < place->next_turn_ns)", ")"),
     ("turns are too short", "uint64_t turn_ns = (now_ns - next->place.opened_ns) / 2;",
      "uint64_t turn_ns = (now_ns - next->place.opened_ns) / 3;"),
     ("a turn does not reset the count of passes",
      "ticket->place.turn_until_ns = 0; ticket->place.passed = 0;", "ticket->place.turn_until_ns = 0;"),
     ("two requests have a turn in one pool", "if (set->pools[i]->waiting.turn) return false;", ";"),
     ("requests behind a turn are not scanned again after it",
      "if (had_turn) next = TAILQ_FIRST(&schedule->tickets);", ""),
     ("one turn follows upon another", "serve(schedule, now_ns, !ended);", "serve(schedule, now_ns, true);"),
     ("more than sixteen requests are served in one scan before a waiting one", "serve(schedule, now_ns, !ended);",
      "serve(schedule, now_ns, false);"),
     ("turns are granted from the emergency reserve",
      "return moor__request_set_can(&ticket->demand.set, &unused);",
      "struct moor__request_set set = ticket->demand.set; set.is_inside = moor__pressured_holder != NULL; "
      "return moor__request_set_can(&set, &unused);"),
     ("a ticket that fits waits at its opening", "|| try_to_serve(schedule, ticket)) moor__schedule_run",
      "|| false) moor__schedule_run"),
     ("a deadline does not wake the monitor",
      "schedule->due_ns = moor__min(ticket->demand.deadline_ns, schedule->due_ns);", ""),
     ("tickets are served from the emergency reserve",
      "const struct moor__request_set set = ticket->demand.set; moor__request_set_lock(&set); bool served =",
      "struct moor__request_set set = ticket->demand.set; set.is_inside = true; "
      "moor__request_set_lock(&set); bool served ="))

vary("core/governor/charge.c",
     ("threads get credit beyond a holder's limit", "set->is_inside ? 0 : room);",
      "moor__pool_room(holder, false) * 64);"),
     ("returned bytes are still expected",
      "moor_ticket ticket = moor__eviction_count(holder, step.bytes, step.to == MOOR__PENDING); "
      "step.is_passing = true; /* below */ moor__transfer_apply(moor__thread_cache_for(holder), holder, step); "
      "moor__queue_scan_locked(governor);",
      "step.is_passing = true; moor__transfer_apply(moor__thread_cache_for(holder), holder, step); "
      "moor__queue_scan_locked(governor); moor_ticket ticket = moor__eviction_count(holder, step.bytes, "
      "step.to == MOOR__PENDING);"))

vary("core/governor/stats.c",
     ("a snapshot leaves out the credit of threads",
      "moor__accounts_lock(authority); *ret_stats = authority_stats(authority);",
      "moor__lock_acquire(&authority->lock); *ret_stats = authority_stats(authority);"))

vary("core/governor/account.c",
     ("returned credit is lost", "moor__holder_account_add(holder, MOOR__CREDIT, -credit);", ""))

vary("core/governor/ticket.c",
     ("a cancelled turn does not end", "if (had_turn) moor__queue_scan_locked(governor);",
      "(void)had_turn;"))

vary("core/governor/plan.c",
     ("the newest holders are asked first", ": a->victim.created < b->victim.created;",
      ": a->victim.created > b->victim.created;"),
     ("the emergency reserve is requested inside a pressure function",
      "uint64_t reserve = ticket->demand.set.is_inside ? 0 : authority->limits.set_aside;",
      "uint64_t reserve = authority->limits.set_aside;"),
     ("the end of a turn does not wake the monitor",
      "if (place->turn_until_ns != 0) due = moor__min(due, place->turn_until_ns);", ""),
     ("the next possible turn does not wake the monitor",
      "if (place->passed >= MOOR_PASSED_MAX && place->next_turn_ns > now_ns) due = moor__min(due, "
      "place->next_turn_ns);", ""),
     ("the end of a cool-down does not wake the monitor",
      "if (!victim->request.ticket && victim->cool_until_ns > now_ns) due = moor__min(due, "
      "victim->cool_until_ns);", ""),
     ("pending bytes are requested again",
      "struct plan plan = {schedule, authority, now_ns, sums->commitments_later,",
      "struct plan plan = {schedule, authority, now_ns, sums->commitments,"),
     ("requested bytes are requested again",
      "if (request->is_expected) plan_change(plan, holder, -moor__min(",
      "if (false) plan_change(plan, holder, -moor__min("),
     ("quarantined bytes are requested",
      "uint64_t movable = moor__sub_sat(has, moor__account_get(&holder->account, MOOR__QUARANTINED));",
      "uint64_t movable = has;"),
     ("a guarantee protects a holder above its limit", "(void)ask(plan, ticket, holder, own, true, true);",
      "(void)ask(plan, ticket, holder, own, true, false);"),
     ("a request without a deadline asks without end",
      "return ticket->demand.is_brief && holder->victim.answered > ticket->pressure.answers_before;",
      "return false;"),
     ("a request without a deadline ignores other pressure requests",
      "if (moor__request_set_has(&ticket->demand.set, holder->authority)) return true;",
      "if (moor__request_set_has(&ticket->demand.set, holder->authority) && request->ticket == ticket->handle) "
      "return true;"),
     ("a request that can never fit causes pressure requests", "|| ticket->refusal.status == MOOR_NEVER_FITS)", ")"),
     ("guaranteed bytes are kept although the pool is over its capacity",
      "ask_victims(plan, ticket, NULL, moor__sub_sat(plan->has, authority->limits.capacity), true);", ""),
     ("bytes lent out of guarantees are not requested",
      "ask_victims(plan, ticket, NULL, borrowed_bytes(authority, plan->commitments), false);", ""),
     ("bytes lent out of guarantees are not reported",
      "return moor__max(moor__sub_sat(sums->has, authority->limits.capacity), borrowed_bytes(authority, "
      "sums->commitments));", "return moor__sub_sat(sums->has, authority->limits.capacity);"),
     ("bytes that the pool lacks already are not requested",
      "uint64_t pool = moor__sub_sat(moor__add_sat(others, part->bytes),",
      "uint64_t pool = moor__sub_sat(moor__max(others, moor__authority_capacity(authority)) + part->bytes,"))

vary("core/governor/queue.c",
     ("a second small eviction does not lengthen the cool-down", "victim->cool_down_ns ? 2 * victim->cool_down_ns :",
      "victim->cool_down_ns ? victim->cool_down_ns :"),
     ("a cool-down has no maximum", "victim->cool_down_ns = moor__min(twice_ns, MOOR_COOL_DOWN_MAX_NS);",
      "victim->cool_down_ns = twice_ns;"),
     ("any eviction counts as enough",
      "if (moor__min(victim->request.evicted_bytes, freed_bytes(holder)) >= victim->request.bytes) {",
      "if (victim->request.evicted_bytes > 0) {"),
     ("bytes that a holder takes again count as evicted",
      "if (moor__min(victim->request.evicted_bytes, freed_bytes(holder)) >= victim->request.bytes) {",
      "if (victim->request.evicted_bytes >= victim->request.bytes) {"),
     ("evicted bytes are counted twice", "holder->victim.evicted_bytes += bytes;",
      "holder->victim.evicted_bytes += 2 * bytes;"))

vary("core/governor/request.c",
     ("a pressure request is sent although enough bytes are expected", "bool comes = refusal.status == MOOR_PENDING ||",
      "bool comes = refusal.status == MOOR_CORRUPT ||"),
     ("a full device asks the requester first", ".requester = requester,", ".requester = NULL,"),
     ("external use is not refreshed before a refusal", "tries < set->pool_count && refusal->external;",
      "tries < set->pool_count && false;"))


# ---- the governor: credit ----


# ---- the governor: order and turns ----


# ---- the governor: asking ----


plant("core/memory/charge.c",
      ("a failed allocation keeps its reservation",
       "moor__reservation_return(reservation); moor__object_free(object);",
       "moor__object_free(object);",
       "core/allocate, sim mixed"),
      ("a copy on write over the budget is not charged",
       "moor__reservation_charge_for_rollback(reservation, object->ops->line, object->requested_bytes,"
       " object->bytes);",
       "moor__reservation_return(reservation);",
       "core/writable"),
      ("a step without a charge is undone with a refund",
       "if (status) roll_back(object, reservation, grant);",
       "if (status) { moor__reservation_return(reservation); object->ops->leave(object); }",
       "core/segments"),
      ("a new segment is not charged",
       "if (!status) status = moor__reservation_charge(",
       "if (!status && object->ops->kind != MOOR__KIND_SEGMENT) status = moor__reservation_charge(",
       "core/segments, sim memory"),
      ("a short device is not tried again after a reap",
       "bool made = (*tries)++ == 0 &&",
       "bool made = (*tries)++ == 7 &&",
       "core/shortage, sim sharing"),
      ("a full device causes no pressure request",
       "made = moor__pressure_for_device(binding->holder, bytes);",
       "made = false;",
       "core/pressure, sweep full"),
      ("the provider's error text is lost",
       "moor__error_scope_end(&aside); return made;",
       "return made;",
       "sweep full"))

plant("core/memory/granule.c",
      ("offset and length that wrap are let through",
       "if (length_bytes > UINT64_MAX - offset_bytes)",
       "if (length_bytes > UINT64_MAX - 1)",
       "core/ranges, sim faults"),
      ("an offset inside a granule is let through",
       "length_bytes == 0 || offset_bytes % range->granule_bytes ||",
       "length_bytes == 0 ||",
       "core/ranges"),
      ("a part beyond the range is let through",
       "if (offset_bytes + length_bytes > range->memory.size_bytes)",
       "if (offset_bytes + length_bytes > range->memory.size_bytes + range->granule_bytes)",
       "core/ranges, sim faults"))

plant("core/memory/part.c",
      ("addresses go before the last part",
       "bool last = --range->parts_out == 0 && range->is_leaving;",
       "bool last = --range->parts_out <= 1 && range->is_leaving;",
       "core/ranges, sim mixed"),
      ("granules with different uses leave together",
       "while (end < range->granule_count && end * range->granule_bytes < limit &&",
       "(void)limit; while (end < range->granule_count &&",
       "core/ranges"),
      ("only the first granule's state is checked",
       "status = moor__range_expect(range, first, count, MOOR__GRANULE_FREE);",
       "status = moor__range_expect(range, first, 1, MOOR__GRANULE_FREE);",
       "core/ranges, sim faults"),
      ("the undo of a commit keeps its granules",
       "moor__range_set(part->range, part->first, part->count, MOOR__GRANULE_FREE);",
       "",
       "core/transactions, sim sharing"))

plant("core/memory/step.c",
      ("a new segment is mapped into a range of another domain",
       "if (!status && binding && work->range->memory.object.binding->domain != binding->domain)",
       "if (!status && binding && false)",
       "core/transactions, sim sharing"))

plant("core/memory/step.c",
      ("a segment is mapped into a range of another granule",
       "segment->granule_bytes != work->range->granule_bytes)",
       "segment->granule_bytes == 0)",
       "core/segments, sim lifecycle"),
      ("a segment that is not sealed is mapped read-only",
       "segment->is_sealing || segment->is_sealed == is_writable ||",
       "segment->is_sealing ||",
       "core/segments, sim memory"))

plant("core/memory/object.c",
      ("the undo forgets the grant",
       "object->grant = moor__grant_expect(moor__runtime_of(object->binding), grant);",
       "(void)grant;",
       "core/transactions"),
      ("a buffer's bytes are not refunded",
       "moor__refund(binding->holder, returned, object->requested_bytes, to_grant);",
       "if (object->ops->kind != MOOR__KIND_BUFFER) moor__refund(binding->holder, returned,"
       " object->requested_bytes, to_grant);",
       "core/release, sim pressure"),
      ("decommitted bytes are not refunded",
       "moor__refund(binding->holder, returned, object->requested_bytes, to_grant);",
       "if (object->ops->kind != MOOR__KIND_RANGE_PART) moor__refund(binding->holder, returned,"
       " object->requested_bytes, to_grant);",
       "core/ranges, sim faults"),
      ("a segment's bytes are not refunded",
       "moor__refund(binding->holder, returned, object->requested_bytes, to_grant);",
       "if (object->ops->kind != MOOR__KIND_SEGMENT) moor__refund(binding->holder, returned,"
       " object->requested_bytes, to_grant);",
       "core/segments, sim faults"),
      ("bytes are refunded twice",
       "moor__refund(binding->holder, returned, object->requested_bytes, to_grant);",
       "moor__refund(binding->holder, returned, object->requested_bytes, to_grant);"
       " moor__refund(binding->holder, returned, object->requested_bytes, to_grant);",
       "core/release, sim pressure"),
      ("bytes that did not come back are refunded",
       "uint64_t returned = moor__min(actual_bytes, object->bytes),",
       "uint64_t returned = object->bytes,",
       "core/quarantine"),
      ("returned bytes go to the budget, not to the grant",
       "object->grant ? moor__min(object->grant_bytes, returned) : 0;",
       "0;",
       "core/transactions"),
      ("released bytes are evicted for no ticket",
       "object->ticket = evicts ? ticket : object->ticket;",
       "(void)ticket;",
       "core/pressure, lockstep"))

plant("core/memory/step.c",
      ("a new segment's mapping has no share",
       "segment->owners++; /* the mapping */",
       "",
       "core/transactions, sim faults"))

vary("core/memory/object.c",
      ("a retried object is live while it is pending",
       "moor__unquarantine(holder, object->bytes); return; }",
       "moor__unquarantine(holder, object->bytes); moor__unpending(holder, object->ops->line, object->bytes); }"))

plant("core/util/runtime.c",
      ("a forked child uses the parent's runtime",
       "return moor__fail(MOOR_FORKED,",
       "return MOOR_OK; return moor__fail(MOOR_FORKED,",
       "core/fork"))

# ---- handles, lives ----

plant("core/util/handles.c",
      ("a stale handle is accepted",
       "if (!(word & MOOR__SLOT_LIVE) || generation_of(word) != handle_generation(handle)) {",
       "if (!(word & MOOR__SLOT_LIVE)) {",
       "core/handles, sim streams"),
      ("a slot is used again under its old generation",
       "if (!moor__handles_renew(slot)) return;", "if (generation_of(word) == MOOR__GENERATION_MAX) return;", "core/handles, sim streams"),
      ("a handle of another runtime is accepted",
       "if (((handle ^ handles->shape) >> MOOR__TAG_SHIFT) & MOOR__TAG_MAX)", "if (handle == UINT64_MAX)",
       "core/handles, sim faults"),
      ("a handle of another kind is accepted",
       "if (kind != (uint32_t)handles->kind)", "if (kind == MOOR__KIND_COUNT)",
       "core/handles, sim streams"),
      ("a reused slot keeps its old contents",
       "memset((char *)slot + sizeof *slot, 0, handles->slot_bytes - sizeof *slot);", "",
       "core/ranges, sim mixed"),
      ("a completion finds an object of another generation",
       "return !(word & MOOR__SLOT_LIVE) && generation_of(word) == handle_generation(handle) ? slot : NULL;",
       "return !(word & MOOR__SLOT_LIVE) ? slot : NULL;", "core/quarantine"))

plant("core/util/handles.h",
      ("a renewed handle is the old one", "((word >> MOOR__GENERATION_SHIFT) + 1) <<",
       "(word >> MOOR__GENERATION_SHIFT) <<", "core/writable"), unit="core/memory/writable.c")

plant("core/loader/provider.c",
      ("a NULL out-parameter is written", "if (!provider || !out)", "if (!provider)", "core/arguments"))

plant("core/memory/unload.c",
      ("a provider is unloaded with one object alive", "if (alive == 0)", "if (alive <= 1)",
       "core/providers"))

plant("core/loader/load.c",
      ("a pool shrinks with a new provider without a pressure request", "moor__devices_review_pools(provider);", ";",
       "core/limits"),
      ("a poisoned provider is freed",
       "if (!provider || provider->host.poisoned) return;",
       "if (!provider) return;",
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
      ("memory used by a lost stream is freed",
       "entry->status = stream->status;", "entry->points->value = 0;", "kit/queue"),
      ("a reap returns one completion too many",
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
      ("an object in use is taken away",
       "if (!status && slot->users > 0)", "if (!status && slot->users == CLAIMED)",
       "kit/handles"),
      ("an object under release is lent",
       "if (slot->users == CLAIMED) return moor_kit_fail(", "if (false) return moor_kit_fail(",
       "kit/handles"),
      ("a kit slot is reused under its old handle",
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
      ("a wait takes its seconds for minutes", "(time_t)(longest_ns / second_ns +", "(time_t)(longest_ns / second_ns * 60 +", "kit/host"),
      ("a past deadline wraps", "return now_ns < deadline_ns ? deadline_ns - now_ns : 0;", "return deadline_ns - now_ns;", "kit/host"),
      ("a fill writes words for halves", "((uint16_t *)memory)[i] = (uint16_t)pattern;", "((uint16_t *)memory)[i] = (uint8_t)pattern;", "kit/host"),
      ("a hole frees nothing", "if (result == 0) return MOOR_OK; return moor_kit_fail(error, MOOR_PROVIDER, errno,",
       "return MOOR_OK; return moor_kit_fail(error, MOOR_PROVIDER, errno,", "kit/host"),
      ("a hole is punched again after an earlier interruption", "while (result != 0 && errno == EINTR);",
       "while (errno == EINTR);", "kit/host"),
      ("a memory file is made without room", "limit.rlim_cur < MOOR_KIT_FILE_BYTES", "limit.rlim_cur == 0", "kit/host"))

plant("abi/kit/limits.c",
      ("a controller in the middle of a list is not seen", "|| at[length] == ',' ||", "|| (at[length] == ',' && false) ||",
       "kit/limits"),
      ("a limit above the own group is ignored", "*slash = '\\0'; } }  int moor_kit_limits_open", "break; } }  int moor_kit_limits_open",
       "kit/limits"),
      ("dirty cache counts as free", "(clean > dirty ? clean - dirty : 0)", "clean", "kit/limits"),
      ("a file is read again after an earlier interruption", "while (length < 0 && errno == EINTR);",
       "while (errno == EINTR);", "kit/limits"),
      ("descriptor 0 counts as a failure", "if (limits->meminfo < 0)", "if (limits->meminfo <= 0)", "kit/limits"),
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
      ("granules can leave twice", "if (is_whole) set(range, first, count, state_during(release));", "", "kit/range"),
      ("a failed release has left", "end_release(handles, release, state_before(release));",
       "end_release(handles, release, MOOR_KIT_GRANULE_FREE);", "kit/range"),
      ("granules queued for decommit are gone", "range->states[i] == MOOR_KIT_GRANULE_DECOMMITTING;", "false;", "kit/range"),
      ("a refused release keeps the range", "moor_kit_handles_put(handles, release->handle); return moor_kit_fail(",
       "return moor_kit_fail(", "kit/range"),
      ("a span that is refused keeps the range", "else moor_kit_handles_put(handles, handle);", "", "kit/range"),
      ("a range with contents may go", "if (used_count == 0) return MOOR_OK;", "if (used_count < 3) return MOOR_OK;",
       "kit/range"),
      ("stuck granules count as used", "range->used_count += state > MOOR_KIT_GRANULE_STUCK;",
       "range->used_count += state >= MOOR_KIT_GRANULE_STUCK;", "kit/range"),
      ("granules of other calls are settled", "assert(are_all(range, first, count, MOOR_KIT_GRANULE_BUSY)); set(", "set(", "kit/range"))
