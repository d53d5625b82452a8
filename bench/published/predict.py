#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""Simulates the expressible rows of runs.json with zero_train, and prints each step beside the published one.

predict.py ZERO_TRAIN [--from-smallest] [NAME...]

Rows are those whose name begins with one of NAME; all unless given. Exits with 1 if a row contradicts itself
(check.py), or cannot be simulated.

Nothing is fitted to the rows. What kernels of a row's program take follows from programs.json (program_work.py); links
reach the shares that devices.json has under "measured", and take the time that NCCL's own model gives a collective and
a hop.

--from-smallest adds columns that answer another question: whether a program's larger runs follow from one smaller one.
Of each group the run with the fewest ranks gives one number: the factor on the rates of products and attention at which
its simulated step is the published one. The others of the group are simulated with that factor. A group is what one
program ran on one cluster; of that, the runs of one model; of these, the runs whose GPUs have the same work. Runs that
give the number have no error and are in no pair; "none": no factor that a device could have gives it.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import check
import program_work as work

MOST = 1.1  # of a device's peak, which is for a clock that GeForce cards exceed

GROUPINGS = {
    "program": "publication cluster program".split(),
    "model": "publication cluster program model".split(),
    "work": "publication cluster program model sequence micro_batch recompute dtype".split(),
}


def group_of(row, grouping):
    """Tensor ranks and stages share the work of a model."""
    of_part = [row["mesh"].get(axis, 1) for axis in ("tensor", "pipeline")] if grouping == "work" else None
    return json.dumps([*(row.get(key) for key in GROUPINGS[grouping]), of_part])


def hops_share(row):
    """What one hop takes so that all hops of a block's collectives take as long as the program's.

    This engine gathers a block, its vectors apart, again for backward, and reduces it at once; FSDP has a collective
    for each of these. DeepSpeed of 2021 gathers each of a block's four weights by itself, forward, again and for
    backward, and reduces each. Those of norms and biases run beside products, and are not counted."""
    if row["stage"] < 3:
        return 1
    return (16 if row.get("program") == "DeepSpeed" else 3) / 4


def cluster_of(row, files):
    """The cluster file of a row, beside a file of its operations' rates."""
    cluster = files["clusters"][row["cluster"]]
    device = files["devices"][cluster["device"]]
    publication, mesh, nccl = files["publications"][row["publication"]], row["mesh"], files["nccl"]
    within = cluster["within_host_gb_s"] * work.of_device(work.LINKS, cluster["device"])
    program = work.program_of(row, files)
    if "tensor" in program and mesh.get("tensor", 1) > 1:  # on the compute stream, as part of a layer's work
        within = 999999

    if row["recompute"] == "full" and program.get("recompute") == "whole":
        within *= 5 / 6 if mesh.get("tensor", 1) > 1 else 1  # sums of a block: the sixth is of the last product again
    hops = hops_share(row)

    def link(gb_s, hop, share):
        return {"bandwidth": f"{gb_s:g}GB/s", "latency": f"{nccl['hop_us'][hop] * share:.4g}us"}

    hop = "nvlink" if device["nvlink_gb_s"] else "pcie"
    links = {"within_host": link(within, hop, hops if mesh.get("tensor", 1) == 1 else 1),
             "collective": f"{nccl['collective_us']}us"}
    if cluster["between_hosts_gb_s"]:
        halves = mesh.get("replicate", 1) > 1 and publication.get("sums_of_replicas") == "bf16"  # here fp32
        between = cluster["between_hosts_gb_s"] * work.NETWORK * (2 if halves else 1)
        links["between_hosts"] = link(between, "network", hops)
    return {"hosts": row["hosts"], "devices": row["devices"] // work.tensor_stream(row, files), "kind": "gpu",
            "memory": f"{device['memory_gib']}GiB",
            "peak": f"{device['bf16_tflops']}TFLOP/s", "peak_fp32": f"{device['fp32_tflops']}TFLOP/s",
            "memory_bandwidth": f"{device['memory_gb_s']}GB/s",
            "shares": {"memory": work.MEMORY, "beside_communication": work.beside_communication(row, files)},
            "submit": "3us", "least_time": "3us", "operations": "operations.json", "links": links}


def config_of(row, files):
    model = {key: value for key, value in work.model_of(row, files).items() if key != "parameters"}
    mesh = {axis: value for axis, value in row["mesh"].items() if axis != "sequence_parallel"}
    if (ranks := work.tensor_stream(row, files)) > 1:
        model, mesh = work.part_of(model, ranks), {axis: value for axis, value in mesh.items() if axis != "tensor"}
    recompute, group = row["recompute"], row.get("group", 1)
    # FSDP gathers the next unit however large both are; the default would hold blocks of 70B one at a time.
    zero = {"stage": row["stage"], "stage3_max_live_parameters": 10**12}
    if not work.overlaps(row, files):
        zero["overlap_comm"] = False
    config = {"model": model, "data": {"train": "tokens.bin", "sequence_length": row["sequence"]},
              "train_micro_batch_size_per_gpu": row["micro_batch"] * group,
              "gradient_accumulation_steps": row["accumulation"] // group,
              "train_batch_size": check.global_batch(row),
              "zero_optimization": zero,
              "mesh": mesh,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
              "run": {"device": "cuda", "steps": 2, "sums": "fast"},
              "reduction": row.get("reduction", "every_micro_batch")}
    if row["dtype"] != "fp32":
        config[row["dtype"]] = {"enabled": True}
        config["data_types"] = {"grad_accum_dtype": work.gradients_of(row, files)}
    if recompute == "full":
        config["activation_checkpointing"] = {"recompute": "full"}
    elif isinstance(recompute, dict):
        config["activation_checkpointing"] = {"recompute": recompute["mode"], "tensors": recompute["tensors"]}
    config["mesh"]["chunks"] = 1  # no program hides tensor ranks' collectives as this engine does
    if row["mesh"].get("sequence_parallel") and ranks == 1:
        config["mesh"]["sequence_parallel"] = True
    return config


class Simulator:
    """Runs zero_train --simulate, once for a row and factor, or for each kind of stage of its pipeline."""

    def __init__(self, program, files, folder):
        self.program, self.files, self.folder = program, files, pathlib.Path(folder)
        self.said, self.factors = {}, {}

    def run(self, row, factor=1.0):
        """What zero_train printed of the longest stage, with the step of all."""
        key = row["name"], factor
        if key not in self.said:
            said = [self.simulate(stage, factor) for stage in work.stages_of(row, self.files)]
            longest = max(said, key=lambda stage: stage["step_seconds"])
            step = longest["step_seconds"] + work.bubble(row) * said[-1]["step_seconds"]
            self.said[key] = {**longest, "step_seconds": step}
        return self.said[key]

    def simulate(self, row, factor):
        """What zero_train printed; RuntimeError with its last line if it failed."""
        paths = {name: self.folder / f"{name}.json" for name in ("config", "cluster", "operations")}
        paths["config"].write_text(json.dumps(config_of(row, self.files)))
        paths["cluster"].write_text(json.dumps(cluster_of(row, self.files)))
        paths["operations"].write_text(json.dumps(work.operations(row, self.files, factor)))
        command = [self.program, "--config", str(paths["config"]), "--simulate", str(paths["cluster"]), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            raise RuntimeError(lines[-1] if lines else f"status {done.returncode}")
        return json.loads(done.stdout)

    def factor(self, row, published):
        """At which the step is the published one, within 0.1 %; None if no rate up to MOST gives one so short."""
        if row["name"] not in self.factors:
            self.factors[row["name"]] = self.find_factor(row, published)
        return self.factors[row["name"]]

    def find_factor(self, row, published):
        def step(slowness):
            return self.run(row, 1 / slowness)["step_seconds"]

        device = self.files["clusters"][row["cluster"]]["device"]
        kernels = work.of_device(self.files["products"], device)
        least = kernels["square_tflops"] / self.files["devices"][device]["bf16_tflops"] / MOST
        last, last_step = 1.0, step(1.0)
        slowness = max(least, published / last_step)
        for _ in range(30):  # a step is nearly linear in the slowness: secants
            seconds = step(slowness)
            if abs(seconds / published - 1) < 0.001:
                return 1 / slowness
            if slowness == least and seconds > published:
                return None
            if seconds == last_step:  # communication hides all of it
                nearer = slowness * (2 if seconds < published else 0.5)
            else:
                nearer = slowness + (published - seconds) * (slowness - last) / (seconds - last_step)
            last, last_step = slowness, seconds
            slowness = min(max(nearer, least), 32)
        return None


def smallest(rows, results, grouping):
    """The row of each group of at least two that has the fewest ranks, of these the fewest parameters."""
    members = {}
    for row in rows:
        members.setdefault(group_of(row, grouping), []).append(row)
    return {key: min(those, key=lambda row: (results[row["name"]]["ranks"], results[row["name"]]["parameters"]))
            for key, those in members.items() if len(those) > 1}


class Column:
    """One way to predict, and its errors; with a grouping, one run of each group gives the factor of the others."""

    def __init__(self, simulator, results, rows, grouping=None):
        self.title = f"from one run of the same {grouping}" if grouping else "nothing fitted"
        self.simulator, self.results, self.grouping = simulator, results, grouping
        self.giving = smallest(rows, results, grouping) if grouping else {}
        self.errors, self.shares = {}, {}

    def predict(self, row):
        """The error of the row's step, as text; what the row gives, if others of its group follow from it."""
        result, factor = self.results[row["name"]], 1.0
        if self.grouping:
            giver = self.giving.get(group_of(row, self.grouping))
            if giver is None:
                return "-"
            factor = self.simulator.factor(giver, self.results[giver["name"]]["step_seconds"])
            if factor is None:
                return "none"
            if giver is row:
                return f"x {factor:.2f}"
        seconds = self.simulator.run(row, factor)["step_seconds"]
        self.errors[row["name"]] = seconds / result["step_seconds"] - 1
        self.shares[row["name"]] = result["share_of_peak"] * result["step_seconds"] / seconds
        return f"{self.errors[row['name']]:+.1%}"

    def summary(self):
        if not self.errors:
            return f"{self.title}: 0 rows"
        worst = max(self.errors, key=lambda name: abs(math.log1p(self.errors[name])))
        pairs = check.pairs([result for result in self.results.values() if result["name"] in self.errors])
        ordered = [(a["share_of_peak"] < b["share_of_peak"]) == (self.shares[a["name"]] < self.shares[b["name"]])
                   for a, b in pairs]
        return (f"{self.title}: {len(self.errors)} rows: mean error "
                f"{sum(map(abs, self.errors.values())) / len(self.errors):.1%}, worst {self.errors[worst]:+.1%} "
                f"({worst}); order right in {sum(ordered)} of {len(ordered)} pairs")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="ZERO_TRAIN")
    parser.add_argument("names", metavar="NAME", nargs="*")
    parser.add_argument("--from-smallest", action="store_true", help="also predict from a group's smallest run")
    arguments = parser.parse_intermixed_args()
    files = {key: value for name in ("publications", "models", "devices", "programs")
             for key, value in check.load(name).items()}
    wrong, failed = [], 0
    rows = [row for row in check.load("runs")["runs"] if row["expressible"] is True]
    results = {row["name"]: result for row in rows if (result := check.check_row(row, files, wrong))}
    rows = [row for row in rows if row["name"] in results]
    with tempfile.TemporaryDirectory() as scratch:
        simulator = Simulator(arguments.program, files, scratch)
        groupings = list(GROUPINGS) if arguments.from_smallest else []
        columns = [Column(simulator, results, rows, grouping) for grouping in [None, *groupings]]
        titles = ["error", *(f"by {grouping}" for grouping in groupings)]
        print(f"{'run':28} {'ranks':>6} {'published, s':>12} {'predicted, s':>12} "
              f"{' '.join(f'{title:>10}' for title in titles)}  limited by")
        for row in rows:
            if arguments.names and not row["name"].startswith(tuple(arguments.names)):
                continue
            result = results[row["name"]]
            start = f"{row['name']:28} {result['ranks']:6} {result['step_seconds']:12.4g}"
            try:
                said = simulator.run(row)
                errors = " ".join(f"{column.predict(row):>10}" for column in columns)
            except RuntimeError as error:
                failed += 1
                print(f"{start}  {error}")
                continue
            print(f"{start} {said['step_seconds']:12.4g} {errors}  {said['limited_by']}"
                  f"{' *' if row.get('assumed') else ''}", flush=True)
    print("\n".join(column.summary() for column in columns))
    print(f"{failed} failed; * the row has an assumed input"
          f"{'; x gives the factor of its group' if arguments.from_smallest else ''}")
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
