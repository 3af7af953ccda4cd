#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of the oracle: the published rows, small traces computed by hand, and expected.json."""
import gzip
import json
import pathlib
import tempfile
import unittest

import replay

HERE = pathlib.Path(__file__).resolve().parent
TRACES = HERE.parents[2] / "shared" / "traces"
CONVERSATION = TRACES / "mooncake" / "conversation_trace.jsonl"

# rows, cap, policy, done, reject, share, new, evict, grow, freed, active, live, pending, wait mean, p99, end
PUBLISHED = (
    (1000, 160, "none", 983, 17, 0, 24667, 0, 679, 24667, 160, 12, 160, "236.53", "451.03", "3089.4"),
    (1000, 640, "none", 1000, 0, 0, 27997, 0, 692, 27997, 506, 13, 240, "9.58", "38.46", "2659.6"),
    (1000, 640, "live", 1000, 0, 974, 27023, 0, 692, 27023, 509, 13, 51, "9.05", "37.01", "2659.6"),
    (1000, 640, "retain", 1000, 0, 999, 26998, 24680, 692, 1690, 509, 13, 5, "9.04", "36.99", "2659.5"),
    (12031, 640, "retain", 12031, 0, 12214, 284599, 263659, 8313, 20322, 609, 19, 7, "8.51", "35.31",
     "28327.1"),
)


class PublishedRows(unittest.TestCase):
    @unittest.skipUnless(CONVERSATION.exists(), "the conversation trace is missing")
    def test_rows_come_out_exactly(self):
        rows = replay.load_mooncake(CONVERSATION)
        self.assertEqual(len(rows), 12031)
        for limit, cap, policy, *figures in PUBLISHED:
            with self.subTest(limit=limit, cap=cap, policy=policy):
                got = replay.simulate(rows[:limit], trace="t", policy=policy, capacity_blocks=cap, scale="8")
                keys = ("done", "reject", "share", "new_blocks", "evict", "grow", "freed",
                        "peak_active_blocks", "max_live", "peak_pending_blocks")
                counts = [got[key] for key in keys]
                times = [f"{got['wait_mean_s']:.2f}", f"{got['wait_p99_s']:.2f}", f"{got['makespan_s']:.1f}"]
                self.assertEqual(counts + times, figures)


class HandComputed(unittest.TestCase):
    """Blocks of 512 tokens, 1 us per prompt token, 10 us per generated token, fence 100 us. Times are us."""

    def check(self, requests, policy, cap, scale="1", **expected):
        rows = [replay.Row(*request) for request in requests]
        got = replay.simulate(rows, trace="t", policy=policy, capacity_blocks=cap, scale=scale, prefill_us=1,
                              decode_us=10, fence_us=100)
        self.assertEqual({key: got[key] for key in expected}, expected)

    def test_one_request(self):
        # full = 1, prompt blocks = 2, tot = ceil(1100 / 512) = 3. Prefill done at 1000, grow of block 2 at
        # 1000 + (2 * 512 - 1000) * 10 = 1240, finish at 1000 + 100 * 10 = 2000, fence passed at 2100.
        row = (0, 1000, 100, [1, 2])
        common = {"done": 1, "share": 0, "new_blocks": 3, "grow": 1, "evict": 0, "peak_used_blocks": 3,
                  "peak_active_blocks": 3, "peak_commit_blocks": 3, "max_live": 1, "wait_p99_s": 0.0,
                  "makespan_s": 0.0021}
        self.check([row], "none", 3, freed=3, resident_end=0, peak_pending_blocks=3, **common)
        # Block 1 is published, so two private blocks leave at the finish; `live` drops block 1 after that.
        self.check([row], "live", 3, freed=3, resident_end=0, peak_pending_blocks=2, **common)
        self.check([row], "retain", 3, freed=2, resident_end=1, peak_pending_blocks=2, **common)
        self.check([row], "retain", 2, reject=1, done=0, new_blocks=0, wait_mean_s=0.0, makespan_s=0.0)

    def test_full_hit_leaves_the_last_block_to_compute(self):
        # The second request finds 2 blocks = its whole prompt, so k = 1 and 512 tokens are computed: 2000 .. 2512.
        rows = [(0, 1024, 0, [1, 2]), (2, 1024, 0, [1, 2])]
        common = {"share": 1, "new_blocks": 3, "resident_end": 2, "makespan_s": 0.002612}
        # Capacity 3: its copy of block 2 stays private, because 2 is known, and leaves at the finish.
        self.check(rows, "retain", 3, evict=0, freed=1, **common)
        # Capacity 2: block 2 is not a hit and is evicted at the start; the copy is published instead.
        self.check(rows, "retain", 2, evict=1, freed=0, **common)

    def test_tails_are_evicted_before_heads_and_hits_never(self):
        # Oldest first after the first finish: 3 2 1. The second lacks 1 block: 3 goes. Then 2 1 8 9, and
        # the third hits 1 and 2, which are older than 8 but kept: 8 goes.
        rows = [(0, 1536, 0, [1, 2, 3]), (5, 1024, 0, [9, 8]), (10, 1536, 0, [1, 2, 3])]
        self.check(rows, "retain", 4, share=2, new_blocks=3 + 2 + 1, evict=2, freed=0, resident_end=4,
                   peak_used_blocks=4, peak_active_blocks=3, peak_pending_blocks=0)

    def test_the_head_blocks_the_line_and_memory_is_back_at_the_fence(self):
        # First: tot 2, prefill done and grow of block 1 at 512, finish at 512 + 5120 = 5632, fence at 5732.
        # Second: tot 3 > cap, rejected at 512, when the queue advances. Third: 5732 to 5732 + 612.
        rows = [(0, 512, 512, [1]), (0, 1536, 0, [2, 3, 4]), (0, 512, 0, [5])]
        self.check(rows, "none", 2, done=2, reject=1, grow=1, new_blocks=3, freed=3, max_live=1,
                   wait_mean_s=0.002866, wait_p99_s=0.0, peak_pending_blocks=2, makespan_s=0.006344)

    def test_pending_peaks_when_private_blocks_leave(self):
        # First: start 0, prefill done 1024, tot 3, finish 1024 + 520 = 1544. Second: start 1024, k = 1;
        # prefill done and finish at 1536: nothing private; it drops 3 (pending 1), while 1 stays referenced.
        # At 1544 one private block joins: 1 + 1 = 2, the peak; then 2 and 1 are dropped. Fence at 1644.
        rows = [(0, 1024, 52, [1, 2]), (0, 1024, 0, [1, 3])]
        self.check(rows, "live", 4, done=2, share=1, new_blocks=4, grow=1, freed=4, max_live=2,
                   peak_used_blocks=4, peak_active_blocks=4, peak_commit_blocks=4, peak_pending_blocks=2,
                   wait_mean_s=0.000512, makespan_s=0.001644)
        # Without sharing and with free blocks the second request waits only for the first prefill.
        self.check(rows, "none", 8, share=0, max_live=2, wait_mean_s=0.000512)
        # With one block less the second waits for the fence of the first; nothing is resident by then.
        self.check(rows, "live", 3, share=0, new_blocks=5, max_live=1, peak_pending_blocks=1, wait_p99_s=0.0,
                   wait_mean_s=0.001644 / 2, makespan_s=0.001644 + 0.001024 + 0.0001)

    def test_referenced_blocks_are_not_evicted(self):
        # The second starts at 2000, two hits and 2 more blocks, prefill done 2512, finish 2512 + 1000. Until
        # then the third, there since 3000, finds nothing to evict; 3 goes at 3512. One block is private.
        rows = [(0, 1024, 0, [1, 2]), (2, 1536, 100, [1, 2, 3]), (3, 512, 0, [9])]
        self.check(rows, "retain", 4, share=2, new_blocks=5, evict=1, freed=1, resident_end=3,
                   peak_active_blocks=4, wait_mean_s=0.000512 / 3, makespan_s=0.004124)

    def test_blocks_behind_a_fence_count_as_active(self):
        # The first block waits for its fence from 512 to 612; the second request starts at 550.
        rows = [(0, 512, 0, [1]), (550, 512, 0, [2])]
        self.check(rows, "none", 2, scale="0.001", peak_used_blocks=2, peak_active_blocks=2, max_live=1,
                   peak_commit_blocks=2, peak_pending_blocks=1, makespan_s=0.001162)

    def test_growth_is_guaranteed_at_the_start_and_committed_when_due(self):
        # First: prefill done 256, grow at 256 + (512 - 256) * 10 = 2816. Second: 1000 to 1612 with its fence.
        rows = [(0, 256, 512, [1]), (1, 512, 0, [2])]
        self.check(rows, "none", 3, grow=1, peak_used_blocks=3, peak_commit_blocks=2, wait_mean_s=0.0)
        self.check(rows, "none", 2, grow=1, peak_used_blocks=2, max_live=1, wait_mean_s=0.004476 / 2)

    def test_scaled_arrivals_round_half_up(self):
        # 3 ms * 0.0005 = 1.5 us, so 2; then 1 us of prefill, no output, and the fence.
        self.check([(3, 1, 0, [1])], "none", 1, scale="0.0005", makespan_s=0.000103)

    def test_nothing_to_do(self):
        self.check([], "retain", 1, done=0, new_blocks=0, wait_mean_s=0.0, wait_p99_s=0.0, makespan_s=0.0)
        # A request without tokens takes no blocks and still finishes.
        self.check([(0, 0, 0, [])], "retain", 1, done=1, new_blocks=0, share=0, makespan_s=0.0001)


class Files(unittest.TestCase):
    ROWS = ({"timestamp": 4, "input_length": 513, "output_length": 7, "hash_ids": [1, 2]},
            {"timestamp": 5, "input_length": 9, "output_length": 0, "hash_ids": [3]})

    def load(self, name, rows, opener=open, newline="\n"):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / name
            with opener(path, "wt", encoding="utf-8", newline="") as file:
                file.writelines(json.dumps(row) + newline for row in rows)
            return replay.load_mooncake(path)

    def test_plain_gzip_and_crlf_read_alike(self):
        plain = self.load("t.jsonl", self.ROWS)
        self.assertEqual(plain[0], (4, 513, 7, [1, 2]))
        self.assertEqual(len(plain), 2)
        self.assertEqual(self.load("t.jsonl.gz", self.ROWS, gzip.open), plain)
        self.assertEqual(self.load("t.jsonl", self.ROWS, newline="\r\n"), plain)

    def test_nonsense_is_refused(self):
        with self.assertRaisesRegex(ValueError, ":2: .*out of order"):
            self.load("t.jsonl", self.ROWS[::-1])
        with self.assertRaisesRegex(ValueError, ":1: .*hashes"):
            self.load("t.jsonl", [self.ROWS[0] | {"hash_ids": [1]}])
        with self.assertRaisesRegex(ValueError, ":1: negative"):
            self.load("t.jsonl", [self.ROWS[0] | {"output_length": -1}])


class KeptFigures(unittest.TestCase):
    @unittest.skipUnless(CONVERSATION.exists(), "the traces are not here")
    def test_expected_json_is_what_the_oracle_says(self):
        kept = json.loads((HERE / "expected.json").read_text(encoding="utf-8"))
        self.assertEqual([entry["arguments"] for entry in kept], list(replay.expected_arguments()))
        for entry in kept:
            with self.subTest(**entry["arguments"]):
                self.assertEqual(replay.run_expected(entry["arguments"], TRACES), entry["result"])


if __name__ == "__main__":
    unittest.main()
