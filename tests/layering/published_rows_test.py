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
import program_work as work  # noqa: E402

FILES = {key: value for name in ("models", "devices", "publications", "programs")
         for key, value in check.load(name).items()}
ROWS = {row["name"]: row for row in check.load("runs")["runs"]}

ANSWER = """#!/bin/sh
echo '{"step_seconds": 1, "limited_by": "products"}'
"""

# A step has 2 PFLOP of products, and 0.5 s of communication for each host beyond the first.
MODEL = f"""#!{sys.executable}
import json, pathlib, sys
path = pathlib.Path(sys.argv[sys.argv.index("--simulate") + 1])
cluster = json.loads(path.read_text())
rates = {{row["name"]: row["value"] for row in json.loads((path.parent / cluster["operations"]).read_text())}}
seconds = 2e6 / rates["linear_forward"] + 0.5 * (cluster["hosts"] - 1)
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

    def test_figures_that_may_be_equal_as_printed_are_no_pair(self):
        self.assertAlmostEqual(check.rounding(0.42), 0.005 / 0.42)
        self.assertAlmostEqual(check.rounding(800), 0.5 / 800)
        self.assertAlmostEqual(check.rounding(32.0), 0.05 / 32)
        self.assertAlmostEqual(check.rounding(800, 10), 5 / 800)  # all of IBM's tokens/s are multiples of 10
        results = [check.check_row(ROWS[name], FILES, []) for name in ("ibm-7b-96h100-eager", "ibm-70b-96h100")]
        self.assertEqual(check.pairs(results), [])  # 1.5 % apart, printed to 0.7 % of both
        self.assertAlmostEqual(check.check_row(ROWS["llmc-124m-8a100"], FILES, [])["rounding"], 5 / 300)  # '~300 ms'

    def test_a_pipeline_has_chunks_and_micro_batches_that_interleave(self):
        def change(rows):
            rows[0].update(mesh={"pipeline": 3}, hosts=4, devices=3, cluster="mosaic-h100")
            rows[1].update(copy.deepcopy(ROWS["megascale-175b-256a100"]), micro_batch=16, accumulation=12)

        status, _, errors = self.predicted(change)
        self.assertEqual(status, 1)
        self.assertIn("chunks: expected of a pipeline's stage", errors)
        self.assertIn("hosts: found 4, expected as many for each of 3 stages", errors)
        self.assertIn("accumulation: found 12, interleaved 8 stages", errors)

    def test_links_have_the_latencies_of_their_kind(self):
        def links(cluster):
            row = {"publication": "llmq", "model": "qwen2.5-0.5b", "cluster": cluster, "hosts": 1, "devices": 4,
                   "stage": 1, "mesh": {"shard": 4}, "recompute": "none"}
            return predict.cluster_of(row, FILES)["links"]

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
        # 2 PFLOP take 3.15 s; the slowest of 16 devices has 0.969 of a typical one's speed; communication stays.
        out = self.scaled([4.0, 4.0 / 0.969 + 0.5])
        self.assertRegex(out, r"llmq-0.5b-h100 .*x 0.79 +x 0.79 +x 0.79")
        self.assertIn("nothing fitted: 2 rows", out)
        for name in ("program", "model", "work"):
            self.assertRegex(out, rf"of the same {name}: 1 rows: mean error 0.[01]%, worst .* \(larger\)")

    def test_another_micro_batch_is_another_work(self):
        out = self.scaled([4.0, 4.0 / 0.969 + 0.5], micro_batch=16, accumulation=32)
        self.assertRegex(out, r"larger .* [+-]0.\d% +[+-]0.\d% +-  ")
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
        row = ROWS["ptdp-1.7b-32a100"]
        rate = work.rates(row, FILES)[0]["attention_backward"] / work.slowest(row, FILES) / 1e12
        # Of a score of a head of 96: 19 bytes in 10.6 ps, products of all pairs in 3.0 ps; 480 FLOP are counted.
        self.assertAlmostEqual(rate, 480 / (10.59 + 2.98), places=1)
        self.assertFalse(predict.config_of(row, FILES)["zero_optimization"]["overlap_comm"])

    def test_products_lose_by_depth_and_by_rounds_of_tiles(self):
        kernels = {"square_tflops": 700, "overhead_depth": 200, "multiprocessors": 128}
        tiles = FILES["tiles"]["shapes"]

        def rate(*shape):
            return 2 * shape[0] * shape[1] * shape[2] / work.product_seconds(kernels, tiles, *shape) / 1e12

        self.assertAlmostEqual(rate(8192, 8192, 8192), 700)
        self.assertAlmostEqual(rate(8192, 8192, 200), 700 * 0.5 * 8392 / 8192)
        # 129 tiles of 128 x 256 take two rounds of 128; 258 of 128 x 128 three.
        self.assertAlmostEqual(rate(128 * 129, 256, 8192), 700 * max(129 / 256, 0.88 * 258 / 384))

    def test_what_checkpoints_repeat_is_the_programs(self):
        row = ROWS["foundry-7b-8a100-40"]
        rates = [work.rates({**row, "program": program}, FILES)[0]["linear_forward"] for program in ("", "torch 1.13")]
        # Of 24 shares of a block forward, here 8 are not repeated; torch 1.13 repeated all.
        self.assertAlmostEqual(rates[1] / rates[0], 40 / 48, delta=0.01)

    def test_a_row_has_the_attention_of_its_run(self):
        def rate(name):
            return work.rates(ROWS[name], FILES)[0]["attention_forward"] / work.slowest(ROWS[name], FILES) / 1e12

        self.assertAlmostEqual(rate("foundry-7b-8h100"), 108)     # FlashAttention 1, 2048
        self.assertAlmostEqual(rate("foundry-13b-128h100"), 108)
        self.assertAlmostEqual(rate("foundry-7b-128h100"), 265)   # of FlashAttention-2, by the sweep of large runs

    def test_norms_take_as_long_as_all_of_a_layers_other_kernels(self):
        row = {**ROWS["foundry-7b-8h100"], "gradients": "bf16"}
        memory = 3350e9 * work.MEMORY
        rate = work.rates(row, FILES)[1]["layer_norm_forward"]
        tokens, width = 6 * 2048, 4096
        here = 2 * tokens * width * 4 * 2                    # two norms of four operands
        there = tokens * width * (2 * 4 + 12 + 4 * 4)        # norms, residuals, GELU
        self.assertAlmostEqual(32.5 * here / rate, (32 * there + tokens * width * 4) / memory)  # one after all layers

    def test_norms_of_blocks_that_are_computed_again_take_all_passes_together(self):
        for name in ("ptdp-18b-256a100", "zero3-175b-384a100", "titan-70b-256h100-tp8"):
            row = ROWS[name]
            program = work.program_of(row, FILES)
            sizes = work.Sizes(row, work.model_of(row, FILES), program)
            arithmetic, of_norms = work.rates(row, FILES)
            layer = work.layer_seconds(row, sizes, FILES, program, arithmetic)
            kind = "layer_norm" if "layer_norm_apply" in of_norms else "rms_norm"
            whole = 4 * sizes.tokens * sizes.width * (sizes.norm_share if kind == "layer_norm" else 1)
            forward, again, backward = (operands * whole / of_norms[f"{kind}_{way}"]
                                        for way, operands in (("forward", 4), ("apply", 2), ("backward", 4)))
            runs = sizes.layers * (1.5 * forward + 0.5 * again + backward) + 0.5 * (forward + backward)
            self.assertAlmostEqual(runs / sizes.layers / sum(layer.values()), 1, delta=0.01)

    def test_a_program_with_a_stream_for_tensor_ranks_is_simulated_as_one_of_them(self):
        row = ROWS["megatron-32b-384h100"]
        config, cluster = predict.config_of(row, FILES), predict.cluster_of(row, FILES)
        self.assertEqual((config["mesh"], cluster["hosts"], cluster["devices"]), ({"shard": 48, "chunks": 1}, 48, 1))
        part, whole = config["model"], FILES["models"][row["model"]]
        self.assertEqual((part["heads"], part["head_width"]), (whole["heads"] / 8, 128))
        parameters = 4 * part["heads"] * 128 * part["width"] + 3 * part["width"] * part["intermediate"]
        self.assertAlmostEqual(parameters * 8 / check.block_parameters(whole), 1, places=3)

    def test_a_pipeline_is_simulated_as_one_of_its_stages(self):
        head, others = work.stages_of(ROWS["ptdp-1t-3072a100"], FILES)
        self.assertEqual((head["hosts"], head["mesh"]), (6, {"shard": 6, "tensor": 8}))
        self.assertEqual([stage["model"]["layers"] for stage in (head, others)], [2, 2])
        self.assertEqual((head["model"]["vocabulary"], others["model"]["vocabulary"]), (51200, work.NO_HEAD))
        self.assertEqual(predict.config_of(head, FILES)["model"]["layers"], 2)
        self.assertEqual(work.slowest(others, FILES), work.slowest(ROWS["ptdp-1t-3072a100"], FILES))
        self.assertGreater(work.slowest(head, FILES), work.slowest(others, FILES))
        # 126 layers, head and token table have 128 places.
        stage, = work.stages_of(ROWS["llama3-405b-8192h100"], FILES)
        self.assertEqual((stage["model"]["layers"], stage["model"]["vocabulary"]), (8, work.NO_HEAD))
        self.assertEqual(work.stages_of(ROWS["ptdp-18b-256a100"], FILES), [ROWS["ptdp-18b-256a100"]])

    def test_a_pipelines_step_is_its_longest_stage_and_the_bubble(self):
        row = ROWS["ptdp-1t-3072a100"]
        simulator = predict.Simulator("", FILES, "")
        for head, step in ((2, 2 + 63 / 512), (0.5, 1 + 63 / 512)):
            seconds = iter((head, 1))
            with mock.patch.object(simulator, "simulate", lambda *_: {"step_seconds": next(seconds)}):
                self.assertAlmostEqual(simulator.run(row, head)["step_seconds"], step)
        self.assertAlmostEqual(work.bubble(ROWS["megascale-175b-256a100"]), 7 / (192 * 6))
        self.assertEqual(work.bubble(ROWS["ptdp-18b-256a100"]), 0)

    def test_interleaved_gradients_travel_between_groups_of_micro_batches(self):
        def sizes(name):
            config = predict.config_of(work.stages_of(ROWS[name], FILES)[0], FILES)
            return config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"]

        self.assertEqual(sizes("megascale-175b-256a100"), (8, 24))
        self.assertEqual(sizes("ptdp-530b-2520a100"), (1, 280))  # reduces after backward

    def test_transfers_between_stages_are_work_of_layers_where_they_are_waited_for(self):
        def seconds(name):
            row = work.stages_of(ROWS[name], FILES)[0]
            program = work.program_of(row, FILES)
            return work.pipeline_seconds(row, work.Sizes(row, row["model"], program), FILES, program)

        rows = 2 * 2048 * 20480  # bytes; each of 3 chunks is one of the stage's 3 layers
        once = rows / 8 / (25e9 * 0.77) + rows * 7 / 8 / (300e9 * 0.78) + (14 + 7 * 3.4 + 2 * 8.4) * 1e-6
        self.assertAlmostEqual(seconds("ptdp-530b-2520a100"), once)
        self.assertEqual(seconds("megascale-175b-256a100"), 0)
        row = work.stages_of(ROWS["ptdp-530b-2520a100"], FILES)[0]
        alone = {key: value for key, value in row.items() if key != "chunks"}
        norm = [2 * 4 * 2 * 2048 * 20480 / work.rates(each, FILES)[1]["layer_norm_forward"] for each in (row, alone)]
        self.assertAlmostEqual(norm[0] - norm[1], once * 3 / 3.5)  # of 3 layers and a norm behind them

    def test_products_that_add_to_gradients_move_them_again(self):
        def of_parameters(name, **change):
            row = {**work.stages_of(ROWS[name], FILES)[0], **change}
            program = work.program_of(row, FILES)
            sizes = work.Sizes(row, work.model_of(row, FILES), program)
            backward = [work.layer_bytes(row, sizes, FILES, each, work.gradients_of(row, FILES))[1]
                        for each in (program, {key: value for key, value in program.items() if key != "adds"})]
            return (backward[0] - backward[1]) / (sizes.parameters + sizes.vocabulary * sizes.width / sizes.layers)

        hidden = {name: 1 - work.not_hidden({"cluster": name}, FILES) for name in ("llmq-h100", "llmq-4090")}
        self.assertAlmostEqual(hidden["llmq-h100"], 1 - 0.556 / 0.678, places=2)
        self.assertAlmostEqual(hidden["llmq-4090"], 1 - 0.31 / 2.25, places=2)
        of_a100 = 200 / 258e12 / (2 / (2039e9 * work.MEMORY))
        # In fp32 4 are read, and 2 more written than of bf16.
        self.assertAlmostEqual(of_parameters("megascale-175b-256a100"), 6 * of_a100)
        # llmq overwrites gradients in the first of 128 micro-batches, llm.c never.
        self.assertAlmostEqual(of_parameters("llmq-7b-h100"), 2 * 127 / 128 * (1 - hidden["llmq-h100"]))
        self.assertAlmostEqual(of_parameters("llmq-7b-h100", accumulation=1), 0)
        self.assertAlmostEqual(of_parameters("llmc-124m-8a100"), 2 * of_a100)
        self.assertEqual(of_parameters("foundry-7b-8h100"), 0)

    def test_tensor_ranks_of_transformer_engine_expose_a_part_of_their_scatters(self):
        row = work.stages_of(ROWS["megatron-177b-96h100"], FILES)[0]
        program = work.program_of(row, FILES)
        sizes = work.Sizes(row, row["model"], program)
        seconds = work.tensor_seconds(row, sizes, FILES, program)
        one = 4096 * 12288 * 2 * 7 / 8 / (450e9 * 0.82) + (8.4 + 7 * 3.4) * 1e-6
        self.assertAlmostEqual(seconds["forward"], 2 * (1 / 4 + 3 / 4 * 16 / 132) * one, delta=0.01 * one)
        self.assertAlmostEqual(seconds["backward"], 4 * 16 / 132 * one, delta=0.01 * one)

    def test_the_slowest_of_more_devices_is_slower(self):
        speeds = [work.slowest(ROWS[name], FILES) for name in
                  ("llmq-0.5b-h100", "foundry-7b-8h100", "foundry-7b-128h100", "foundry-7b-512h100")]
        self.assertEqual(speeds[0], 1)
        self.assertEqual(speeds, sorted(speeds, reverse=True))

    def test_links_carry_what_the_program_exposes(self):
        def rate(name, link):
            bandwidth = predict.cluster_of(ROWS[name], FILES)["links"][link]["bandwidth"]
            return float(bandwidth.removesuffix("GB/s"))

        # Replicas of fms-fsdp sum in bf16; Megatron of 2021 repeats a block's last sum of tensor ranks too.
        self.assertAlmostEqual(rate("ibm-7b-128a100", "between_hosts"), 2 * 6.25 * 0.77, places=3)
        self.assertAlmostEqual(rate("ibm-70b-128a100", "between_hosts"), 6.25 * 0.77, places=3)
        self.assertAlmostEqual(rate("ptdp-18b-256a100", "within_host"), 300 * 0.78 * 5 / 6, places=1)
        self.assertAlmostEqual(rate("ptdp-1.7b-32a100", "within_host"), 300 * 0.78, places=1)

    def test_hops_are_as_many_as_the_program_has(self):
        self.assertEqual(predict.hops_share(ROWS["llmq-0.5b-8h100"]), 1)
        # A block of this engine has three gathers and a reduction, FSDP's two and one, DeepSpeed's 12 and 4.
        self.assertEqual(predict.hops_share(ROWS["fsdp-175b-512a100-b1"]), 3 / 4)
        self.assertEqual(predict.hops_share(ROWS["zero3-175b-1536a100"]), 16 / 4)

    def test_a_device_waits_for_a_host_that_handles_each_ranks_slice(self):
        def seconds(name, backward):
            row = ROWS[name]
            program = work.program_of(row, FILES)
            sizes = work.Sizes(row, FILES["models"][row["model"]], program)
            operations = "linear_backward_input", "linear_backward_weight", "attention_backward"
            return work.host_seconds(row, sizes, FILES, program, dict.fromkeys(operations, backward))

        self.assertEqual(seconds("ptdp-18b-256a100", 1e15), {})
        # Of 1536 ranks: two views and a copy of each gather; nothing is beside so fast a backward.
        waits = seconds("zero3-175b-1536a100", 1e30)
        latency = (8.4 + (1536 - 192) * 3.4 + 191 * 14) * 1e-6
        block = check.block_parameters(FILES["models"]["gpt3-175b"])
        network = block * 2 * 1535 / 1536 / 8 / (25e9 * 0.77)
        self.assertAlmostEqual(waits["forward"], 4 * (1536 * 13.1e-6 + latency) + network)
        self.assertEqual(waits["again"], waits["forward"])
        calls = 4 * 13.1 + 12 * 15.4 + 8 * 15.4  # gathers, reductions, and what each device keeps
        self.assertAlmostEqual(waits["backward"], calls * 1536e-6 + 4 * latency + network)
        # The last slice of 20,480 elements is not every rank's: 1078 of 1120 have one of 19.
        block = check.block_parameters(FILES["models"]["megatron-530b"])
        network = block * 2 * 1119 / 1120 / 8 / (25e9 * 0.77)
        latency = (8.4 + (1120 - 140) * 3.4 + 139 * 14) * 1e-6
        kept = 6 * 1078 + 1118 + 1108
        calls_of_530b = (4 * 13.1 + 12 * 15.4) * 1120 + 15.4 * kept
        self.assertAlmostEqual(seconds("zero3-530b-1120a100", 1e30)["backward"],
                               calls_of_530b * 1e-6 + 4 * latency + network)
        overlap = [predict.config_of(ROWS[name], FILES)["zero_optimization"].get("overlap_comm", True)
                   for name in ("zero3-175b-1536a100", "zero3-530b-1120a100", "ptdp-18b-256a100", "llmq-0.5b-8h100")]
        self.assertEqual(overlap, [True, True, False, True])  # of DeepSpeed's: its reductions
        self.assertAlmostEqual(work.beside_communication(ROWS["zero3-175b-1536a100"], FILES), 1 - 16 / 3 / 108)
        # Beside a slow backward reductions cost nothing.
        slow = seconds("zero3-175b-1536a100", 1e13)["backward"]
        self.assertAlmostEqual(waits["backward"] - slow, 12 * 15.4 * 1536e-6)

    def test_a_host_waits_for_products_as_slow_as_the_slowest_device(self):
        seen = []
        keep = work.norm_rates
        with mock.patch.object(work, "norm_rates", lambda *all: seen.append(all[-1]) or keep(*all)):
            arithmetic, _ = work.rates(ROWS["zero3-175b-768a100"], FILES, 0.5)
        self.assertEqual(seen, [arithmetic])
        whole, _ = work.rates(ROWS["zero3-175b-768a100"], FILES)
        self.assertAlmostEqual(arithmetic["linear_backward_input"] / whole["linear_backward_input"], 0.5)


if __name__ == "__main__":
    unittest.main()
