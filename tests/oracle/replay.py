#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Oracle of replay model R1: computes the counts of `moor replay` without any of its code.

The oracle has no provider, memory or governor: blocks are numbers. Time is in integer microseconds.

The model's text is ambiguous in a few places; the readings taken are listed below. "Fixed": of the readings tried, only
this one gives the five published rows. "Open": other readings give them too.

 R1  used = blocks guaranteed to started requests (committed or not) + cached blocks + blocks behind a fence.
     `used` grows only at a start, by `need`; a grow event changes the committed count alone. Fixed.
 R2  active = used - unreferenced cached blocks, so it includes blocks behind a fence. Fixed: the 506 of row 2
     are 502 held by live requests and 4 pending.
 R3  Pending counts every block behind a fence: private ones, and published ones dropped by policy `live`. The
     peak is read at one moment only: in a finish, after the private blocks have been added and before the
     references are dropped. Blocks dropped by `live` therefore show in another finish within the same fence
     time, or not at all. Fixed: 51, not 239.
 R4  An evicted block is free at once: it passes no fence and is never pending. Fixed: 5 and 7 pending.
 R5  A cached block is evictable from its finish on, not from its fence on, as the text says. Open.
 R6  Evict exactly used + need - cap blocks, or none while fewer are evictable (open). The oldest block is the
     one whose count reached 0 first; a hit removes a block from the order, its next drop puts it last. Tails
     before heads: fixed.
 R7  k is final before eviction: if k*b >= in removed one hit, that block is not a hit and may be evicted. The
     request publishes its copy at prefill done if the block was evicted by then; else the copy stays private.
     Open. With no hit to remove (in = 0) k stays 0.
 R8  A block dropped by `live` leaves the index at the finish; its memory returns at the fence. Open.
 R9  Arrivals are inserted first, in file order; grows in block order and then the finish at prefill done;
     the fence at the finish. "Try to start" follows every single event and continues past rejected heads.
     Open.
 R10 A request with tot > cap is rejected when it is the head of the queue while no prefill runs, not when it arrives.
     Open.
 R11 new_blocks = sum of `need`, grown blocks included; share = sum of k; freed = blocks that passed a fence.
     Fixed.
 R12 Waits are start - arrival of started requests; a rejected request has none. p99 is the element with index
     floor(0.99 * (n - 1)) of the sorted waits: no rounding up, no interpolation. Fixed.
 R13 makespan is the time of the last event, counted from 0: normally the last fence (fixed).
 R14 Arrival = timestamp * 1000 * s, the scale read as an exact decimal, rounded once, halves up. Open.
 R15 commit = blocks with memory: committed blocks of live requests + cached + pending. Open: no row shows
     its peak.
 R16 Policy `none` looks nothing up and publishes nothing. A rejected request changes nothing.
"""
import argparse
import collections
import fractions
import gzip
import heapq
import itertools
import json
import pathlib
import sys

# Order of events at one time.
ARRIVAL, PREFILL_DONE, GROW, FINISH, FENCE_PASSED = range(5)

POLICIES = ("none", "live", "retain")
TRACE_BLOCK_TOKENS = 512  # tokens per hash of a Mooncake trace

Row = collections.namedtuple("Row", "arrival_ms tokens_in tokens_out hashes")


def ceil_div(a, b):
    return -(-a // b)


def load_mooncake(path, limit=None):
    """Returns the rows of a Mooncake trace, at most `limit`."""
    opener = gzip.open if str(path).endswith(".gz") else open
    rows = []
    with opener(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if limit is not None and len(rows) == limit:
                break
            entry = json.loads(line)
            row = Row(entry["timestamp"], entry["input_length"], entry["output_length"], entry["hash_ids"])
            if len(row.hashes) != ceil_div(row.tokens_in, TRACE_BLOCK_TOKENS):
                raise ValueError(f"{path}:{number}: wrong number of hashes")
            earliest_ms = rows[-1].arrival_ms if rows else 0
            if row.arrival_ms < earliest_ms or row.tokens_in < 0 or row.tokens_out < 0:
                raise ValueError(f"{path}:{number}: negative figure or time out of order")
            rows.append(row)
    return rows


class Request:
    """A started request."""

    def __init__(self, row, hits, total_blocks):
        self.row = row
        self.shared = list(row.hashes[:hits])  # referenced blocks in order: hits, then the published ones
        self.private_blocks = total_blocks - hits


class Replay:
    """One run of the model."""

    def __init__(self, rows, policy, cap, scale, block_tokens, prefill_us, decode_us, fence_us):
        if block_tokens != TRACE_BLOCK_TOKENS and policy != "none":
            raise ValueError(f"hashes stand for {TRACE_BLOCK_TOKENS} tokens")
        self.policy = policy
        self.cap = cap
        self.block_tokens = block_tokens
        self.prefill_us = prefill_us
        self.decode_us = decode_us
        self.fence_us = fence_us

        self.now = 0
        self.events = []  # heap of (time, kind, insertion number, subject)
        self.inserted = 0
        self.queue = collections.deque()  # (row, arrival time) of waiting requests
        self.prefilling = False
        self.references = {}  # the prefix index: hash of a resident block -> references to it
        self.cached = collections.OrderedDict()  # resident hashes without references, oldest first

        self.used = self.committed = self.pending = self.live = 0
        self.count = dict.fromkeys(("done", "reject", "share", "new_blocks", "evict", "grow", "freed"), 0)
        self.peak = dict.fromkeys(("used", "active", "commit", "pending", "live"), 0)
        self.waits = []

        factor = fractions.Fraction(scale) * 1000
        for row in rows:
            self.insert(int(row.arrival_ms * factor + fractions.Fraction(1, 2)), ARRIVAL, row)

    def insert(self, time, kind, subject):
        heapq.heappush(self.events, (time, kind, self.inserted, subject))
        self.inserted += 1

    def note(self, name, value):
        self.peak[name] = max(self.peak[name], value)

    def check(self):
        assert 0 <= self.pending <= self.used
        assert len(self.cached) <= self.committed <= self.used <= self.cap

    def run(self):
        handlers = {ARRIVAL: self.arrive, PREFILL_DONE: self.finish_prefill, GROW: self.grow,
                    FINISH: self.finish, FENCE_PASSED: self.pass_fence}
        rows = len(self.events)
        while self.events:
            self.now, kind, _, subject = heapq.heappop(self.events)
            handlers[kind](subject)
            while self.queue and not self.prefilling and self.try_start():
                pass
            self.check()

        count = self.count
        assert not self.queue and self.live == 0 and self.pending == 0
        assert count["done"] + count["reject"] == rows
        assert self.used == self.committed == len(self.cached) == len(self.references)
        assert count["new_blocks"] == count["evict"] + count["freed"] + self.used
        assert self.policy == "retain" or self.used == 0
        return self

    def arrive(self, row):
        self.queue.append((row, self.now))

    def try_start(self):
        """Rejects or starts the head of the queue. Returns False if it must wait."""
        row, arrived = self.queue[0]
        hits = self.count_hits(row)
        total = ceil_div(row.tokens_in + row.tokens_out, self.block_tokens)
        need = total - hits
        if total > self.cap:
            self.count["reject"] += 1
            self.queue.popleft()
            return True
        if not self.make_room(need, row.hashes[:hits]):
            return False

        self.queue.popleft()
        for block in row.hashes[:hits]:
            self.cached.pop(block, None)
            self.references[block] += 1
        self.used += need
        self.committed += ceil_div(row.tokens_in, self.block_tokens) - hits
        self.live += 1
        self.prefilling = True
        self.count["share"] += hits
        self.count["new_blocks"] += need
        self.waits.append(self.now - arrived)
        self.note("used", self.used)
        self.note("active", self.used - len(self.cached))
        self.note("commit", self.committed)
        self.note("live", self.live)
        prompt_us = (row.tokens_in - hits * self.block_tokens) * self.prefill_us
        self.insert(self.now + prompt_us, PREFILL_DONE, Request(row, hits, total))
        return True

    def count_hits(self, row):
        """Returns the length of the longest resident prefix that leaves at least one prompt token to compute."""
        if self.policy == "none":
            return 0
        hits = 0
        for block in row.hashes[:row.tokens_in // self.block_tokens]:
            if block not in self.references:
                break
            hits += 1
        if hits > 0 and hits * self.block_tokens >= row.tokens_in:
            hits -= 1
        return hits

    def make_room(self, need, hits):
        """Evicts the blocks missing for `need`, or none. Returns False if too few are evictable."""
        missing = self.used + need - self.cap
        if missing <= 0:
            return True
        if len(self.cached) - sum(block in self.cached for block in hits) < missing:
            return False
        keep = set(hits)
        victims = []
        for block in self.cached:
            if block not in keep:
                victims.append(block)
                if len(victims) == missing:
                    break
        for block in victims:
            del self.cached[block], self.references[block]
        self.used -= missing
        self.committed -= missing
        self.count["evict"] += missing
        return True

    def finish_prefill(self, request):
        self.prefilling = False
        row = request.row
        if self.policy != "none":
            for block in row.hashes[len(request.shared):row.tokens_in // self.block_tokens]:
                if block not in self.references:
                    self.references[block] = 1
                    request.shared.append(block)
                    request.private_blocks -= 1
        prompt_blocks = ceil_div(row.tokens_in, self.block_tokens)
        for block in range(prompt_blocks, ceil_div(row.tokens_in + row.tokens_out, self.block_tokens)):
            generated = block * self.block_tokens - row.tokens_in
            self.insert(self.now + generated * self.decode_us, GROW, request)
        self.insert(self.now + row.tokens_out * self.decode_us, FINISH, request)

    def grow(self, _request):
        self.committed += 1
        self.count["grow"] += 1
        self.note("commit", self.committed)

    def finish(self, request):
        self.live -= 1
        self.count["done"] += 1
        leaving = request.private_blocks
        self.note("pending", self.pending + leaving)  # before references are dropped: see R3
        for block in reversed(request.shared):
            self.references[block] -= 1
            assert self.references[block] >= 0
            if self.references[block] > 0:
                continue
            if self.policy == "live":
                del self.references[block]
                leaving += 1
            else:
                self.cached[block] = None
        self.pending += leaving
        self.insert(self.now + self.fence_us, FENCE_PASSED, leaving)

    def pass_fence(self, blocks):
        self.pending -= blocks
        self.used -= blocks
        self.committed -= blocks
        self.count["freed"] += blocks


def simulate(rows, *, trace, policy, capacity_blocks, scale="1", block_tokens=TRACE_BLOCK_TOKENS,
             kv_bytes_per_token=131072, prefill_us=125, decode_us=30000, fence_us=30000):
    """Runs the model. Returns its figures under the keys of `moor replay --json`."""
    run = Replay(rows, policy, capacity_blocks, scale, block_tokens, prefill_us, decode_us, fence_us).run()
    waits = sorted(run.waits)
    return {
        "trace": trace,
        "policy": policy,
        "scale": float(scale),
        "capacity_blocks": capacity_blocks,
        "block_bytes": block_tokens * kv_bytes_per_token,
        "rows": len(rows),
        **run.count,
        "resident_end": run.used,
        "peak_used_blocks": run.peak["used"],
        "peak_active_blocks": run.peak["active"],
        "peak_commit_blocks": run.peak["commit"],
        "peak_pending_blocks": run.peak["pending"],
        "max_live": run.peak["live"],
        "wait_mean_s": sum(waits) / len(waits) / 1e6 if waits else 0.0,
        "wait_p99_s": waits[99 * (len(waits) - 1) // 100] / 1e6 if waits else 0.0,
        "makespan_s": run.now / 1e6,
    }


def expected_arguments():
    """Returns the runs of expected.json. Traces are named relative to the traces folder."""
    conversation, synthetic = "mooncake/conversation_trace.jsonl", "mooncake/synthetic_trace.jsonl"
    base = {"trace": conversation, "limit": 1000, "policy": "retain", "capacity_blocks": 640, "scale": "8"}
    for trace, limits in ((conversation, (100, 1000, 4000)), (synthetic, (100, 1000, None))):
        for limit, capacity, policy in itertools.product(limits, (160, 320, 640, 1280), POLICIES):
            yield base | {"trace": trace, "limit": limit, "policy": policy, "capacity_blocks": capacity}
    for policy in POLICIES:
        yield base | {"limit": None, "policy": policy}
    for change in ({"scale": "1"}, {"scale": "2.5"}, {"scale": "0.0125"}, {"limit": 0}, {"prefill_us": 50},
                   {"kv_bytes_per_token": 4096}, {"decode_us": 7000}, {"fence_us": 5000000}, {"fence_us": 0},
                   {"policy": "live", "fence_us": 5000000},
                   {"policy": "none", "block_tokens": 16, "capacity_blocks": 9000}):
        yield base | change


def run_expected(arguments, folder):
    options = {key: value for key, value in arguments.items() if key != "limit"}
    return simulate(load_mooncake(folder / arguments["trace"], arguments["limit"]), **options)


def write_expected(folder, path):
    lines = [json.dumps({"arguments": arguments, "result": run_expected(arguments, folder)})
             for arguments in expected_arguments()]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description="Works out replay model R1; prints one JSON object.")
    parser.add_argument("trace", nargs="?", help="Mooncake trace, .jsonl or .jsonl.gz")
    parser.add_argument("--policy", choices=POLICIES, default="retain")
    parser.add_argument("--capacity-blocks", type=int)
    parser.add_argument("--limit", type=int, help="take the first LIMIT rows")
    parser.add_argument("--scale", default="1", help="time scale, a decimal number")
    parser.add_argument("--block-tokens", type=int, default=TRACE_BLOCK_TOKENS)
    parser.add_argument("--kv-bytes-per-token", type=int, default=131072)
    parser.add_argument("--prefill-us-per-token", dest="prefill_us", type=int, default=125)
    parser.add_argument("--decode-us-per-token", dest="decode_us", type=int, default=30000)
    parser.add_argument("--fence-us", type=int, default=30000)
    parser.add_argument("--traces", type=pathlib.Path, default=here.parents[2] / "shared" / "traces",
                        help="the folder that --write-expected reads")
    parser.add_argument("--write-expected", action="store_true", help="write expected.json beside this file")
    options = vars(parser.parse_args())
    folder, write, limit = options.pop("traces"), options.pop("write_expected"), options.pop("limit")
    if write:
        write_expected(folder, here / "expected.json")
        return
    if options["trace"] is None or options["capacity_blocks"] is None:
        parser.error("a trace and --capacity-blocks are needed")
    json.dump(simulate(load_mooncake(options["trace"], limit), **options), sys.stdout)
    print()


if __name__ == "__main__":
    main()
