#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""What predict.py makes of rows and clusters, beside a program that answers at once."""

import contextlib
import copy
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "published"))
import check  # noqa: E402
import predict  # noqa: E402

ANSWER = """#!/bin/sh
echo '{"step_seconds": 1, "limited_by": "products"}'
"""

# A step has 2.2 s of products at their peak, and 0.5 s of communication for each host beyond the first.
MODEL = f"""#!{sys.executable}
import json, sys
cluster = json.load(open(sys.argv[sys.argv.index("--simulate") + 1]))
rate = float(cluster["peak"].removesuffix("TFLOP/s")) / 989.4 * cluster["shares"]["products"]
seconds = 2.2 / rate + 0.5 * (cluster["hosts"] - 1)
print(json.dumps({{"step_seconds": seconds, "limited_by": "products"}}))
"""


class PredictTest(unittest.TestCase):
    def predicted(self, change, answer=ANSWER, flags=()):
        """Exit status, output and errors for the first two expressible rows, as `change` leaves them."""
        rows = [copy.deepcopy(row) for row in check.load("runs")["runs"] if row["expressible"] is True][:2]
        change(rows)
        load = check.load
        out, errors = io.StringIO(), io.StringIO()
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "zero_train"
            program.write_text(answer)
            program.chmod(0o755)
            with mock.patch.object(check, "load", lambda name: {"runs": rows} if name == "runs" else load(name)), \
                    mock.patch.object(sys, "argv", ["predict.py", str(program), *flags]), \
                    contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
                return predict.main(), out.getvalue(), errors.getvalue()

    def test_good_rows_stand_beside_their_prediction(self):
        status, out, errors = self.predicted(lambda rows: None)
        self.assertEqual((status, errors), (0, ""))
        self.assertIn("2 rows: mean error", out)

    def test_a_row_that_lacks_a_key_is_named_and_the_others_go_on(self):
        status, out, errors = self.predicted(lambda rows: rows[0].pop("sequence"))
        self.assertEqual(status, 1)
        self.assertIn("lacks sequence\n", errors)
        self.assertIn("1 rows: mean error", out)

    def test_a_row_that_contradicts_itself_is_named(self):
        status, _, errors = self.predicted(lambda rows: rows[1].update(batch=7))
        self.assertEqual(status, 1)
        self.assertIn("batch: found 7", errors)

    def test_links_have_the_latencies_of_their_kind(self):
        files = {**check.load("models"), **check.load("devices"), **check.load("publications")}

        def links(cluster):
            row = {"publication": "llmq", "model": "qwen2.5-0.5b", "cluster": cluster, "hosts": 1, "devices": 4,
                   "stage": 1, "mesh": {"shard": 4}}
            return predict.cluster_of(row, files)["links"]

        self.assertEqual(links("llmq-4090")["within_host"]["latency"], "5.7us")
        self.assertNotIn("between_hosts", links("llmq-4090"))
        self.assertEqual(links("selene")["within_host"]["latency"], "3.4us")
        self.assertEqual(links("selene")["between_hosts"]["latency"], "14us")
        self.assertEqual(links("selene")["collective"], "8.4us")

    def scaled(self, seconds, **larger):
        """The output where the second row is the first on 16 GPUs of 2 hosts, and their steps are `seconds`."""
        def change(rows):
            rows[1] = {**copy.deepcopy(rows[0]), "name": "larger", "cluster": "mosaic-h100", "hosts": 2, "devices": 8,
                       "mesh": {"shard": 16}, "stage": 1, **larger}
            rows[0]["cluster"] = "mosaic-h100"
            for row, of_row in zip(rows, seconds):
                row["published"] = {"step_seconds": of_row}

        status, out, errors = self.predicted(change, MODEL, ["--from-smallest"])
        self.assertEqual((status, errors), (0, ""))
        return out

    def test_the_smallest_run_of_a_group_gives_the_compute_of_the_others(self):
        # 4 s of compute are 0.55 of the peak, 0.71 of the share of 0.78; communication stays.
        out = self.scaled([4.0, 4.5])
        self.assertRegex(out, r"llmq-0.5b-h100 .*x 0.71 +x 0.71 +x 0.71")
        self.assertIn("nothing fitted: 2 rows", out)
        for name in ("program", "model", "work"):
            self.assertRegex(out, rf"of the same {name}: 1 rows: mean error 0.[01]%, worst .* \(larger\)")

    def test_another_micro_batch_is_another_work(self):
        out = self.scaled([4.0, 4.5], micro_batch=16, accumulation=32)
        self.assertRegex(out, r"larger .* [+-]0.[01]% +[+-]0.[01]% +-  ")
        self.assertIn("of the same work: 0 rows", out)

    def test_a_run_that_no_device_is_as_fast_as_gives_nothing(self):
        out = self.scaled([1.95, 2.5])
        self.assertRegex(out, r"larger .*none +none")
        self.assertIn("of the same program: 0 rows", out)

    def test_a_group_of_one_has_no_error_from_another(self):
        def change(rows):
            rows[1]["model"] = "qwen2.5-0.5b"
            rows[1]["program"] = "another"

        _, out, _ = self.predicted(change, MODEL, ["--from-smallest"])
        self.assertIn("of the same program: 0 rows", out)

    def test_attention_that_keeps_scores_is_limited_by_memory(self):
        files = {**check.load("models"), **check.load("devices"), **check.load("publications")}
        row = next(row for row in check.load("runs")["runs"] if row["name"] == "zero3-175b-384a100")
        share = predict.cluster_of(row, files)["shares"]["attention"]
        # Of a score of a head of 128: 45 bytes in 25.1 ps, products of all pairs in 7.8 ps; 1,152 FLOP are counted.
        self.assertAlmostEqual(share, 1152 / (312 * (25.1 + 7.8)), places=3)
        self.assertFalse(predict.config_of(row, files)["zero_optimization"]["overlap_comm"])

    def test_links_carry_what_the_program_exposes(self):
        files = {**check.load("models"), **check.load("devices"), **check.load("publications")}
        rows = {row["name"]: row for row in check.load("runs")["runs"]}

        def rate(name, link):
            bandwidth = predict.cluster_of(rows[name], files)["links"][link]["bandwidth"]
            return float(bandwidth.removesuffix("GB/s"))

        # Tensor ranks of Megatron of 2024 overlap; replicas of fms-fsdp sum in bf16.
        self.assertAlmostEqual(rate("megatron-32b-384h100", "within_host"), 8 * 450 * 0.82, places=1)
        self.assertAlmostEqual(rate("titan-8b-64h100-tp8", "within_host"), 450 * 0.82, places=1)
        self.assertAlmostEqual(rate("ibm-7b-128a100", "between_hosts"), 2 * 6.25 * 0.77, places=3)
        self.assertAlmostEqual(rate("ibm-70b-128a100", "between_hosts"), 6.25 * 0.77, places=3)

    def test_hops_are_as_many_as_the_program_has(self):
        models = check.load("models")["models"]
        rows = {row["name"]: row for row in check.load("runs")["runs"]}

        def share(name):
            return predict.hops_share(rows[name], models[rows[name]["model"]])

        self.assertEqual(share("llmq-0.5b-8h100"), 1)  # a block is one piece here too
        # 1,812 million elements of a block in pieces of 33.6: two gathers and 54 reductions here.
        self.assertAlmostEqual(share("fsdp-175b-512a100-b1"), 3 / 56)
        self.assertAlmostEqual(share("zero3-175b-1536a100"), 16 / 56)


if __name__ == "__main__":
    unittest.main()
