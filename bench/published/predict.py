#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""Simulates the expressible rows of runs.json with zero_train, and prints each step beside the published one.

predict.py ZERO_TRAIN [--from-smallest] [NAME...]

Rows are those whose name begins with one of NAME; all unless given. Exits with 1 if a row contradicts itself
(check.py), or cannot be simulated.

Nothing is fitted to the rows. What a device reaches is in SHARES, with where it is from; links reach the shares that
devices.json has under "measured", and take the time that NCCL's own model gives a collective and a hop.

--from-smallest adds two columns that answer another question: whether a program's larger runs follow from one smaller
one. Of each group the run with the fewest ranks gives one number: the factor on the shares of products and attention at
which its simulated step is the published one. The others of the group are simulated with that factor. A group is what
one program ran on one cluster, or, in the last column, what it ran there of one model. Runs that give the number have
no error and are in no pair.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import check

# Of a device's peaks; the first name that a device's begins with. Products: bench/results.md (H100: 0.80 to 0.82 for
# the largest, 0.71 at width 768), ml-engineering (A100: 0.87), torchao (H100 of 500 W: 0.69), PyTorch (RTX 4090: 0.97),
# each less what smaller ones lose. Attention: this engine's own on an H100, forward and backward together
# (docs/gpu.md); others were not measured. Links within hosts: ml-engineering; PCIe assumed.
SHARES = {
    "h100-sxm-96gb-500w": {"products": 0.67, "attention": 0.32, "links": 0.82},
    "h100": {"products": 0.78, "attention": 0.32, "links": 0.82},
    "a100": {"products": 0.84, "attention": 0.40, "links": 0.78},
    "rtx-4090": {"products": 0.95, "attention": 0.32, "links": 0.70},
}
MEMORY = 0.88                # copies
BESIDE_COMMUNICATION = 0.95  # collectives take streaming multiprocessors; assumed
NETWORK = 0.77

# Bytes that attention moves for each score, in half precision, where kernels keep all scores. Forward: a product writes
# them (2), softmax reads and writes (4), dropout too, with a mask (5), a product reads them (2). Backward: a product
# reads (2), one writes (2), dropout reads and writes (5), softmax reads two and writes one (6), two products read (4).
SCORE_BYTES = {"forward": 13, "backward": 19}

GROUPINGS = {
    "program": lambda row: (row["publication"], row["cluster"], row.get("program")),
    "model": lambda row: (row["publication"], row["cluster"], row.get("program"), row["model"]),
}


def shares_of(device):
    return next(shares for name, shares in SHARES.items() if device.startswith(name))


def attention_of_scores(row, model, device, products):
    """The share of peak at which attention takes as long as kernels that keep all scores, for all pairs of positions.

    The simulation counts 2 products forward and 5 backward, over the pairs that a causal mask leaves: half."""
    width = model["width"] // model["heads"]
    forwards = 1 if row["recompute"] == "none" else 2
    peak = device["bf16_tflops"] * 1e12
    of_bytes = forwards * SCORE_BYTES["forward"] + SCORE_BYTES["backward"]
    seconds = ((forwards * 2 + 4) * 2 * width / (peak * products) +
               of_bytes / (device["memory_gb_s"] * 1e9 * MEMORY))
    return (forwards * 2 + 5) * width / (peak * seconds)


def cluster_of(row, files, factor=1.0):
    """The cluster file of a row; products and attention reach `factor` times the shares above."""
    cluster = files["clusters"][row["cluster"]]
    device = files["devices"][cluster["device"]]
    shares, nccl = shares_of(cluster["device"]), files["nccl"]
    attention = shares["attention"]
    if files["publications"][row["publication"]].get("attention") == "scores":
        attention = attention_of_scores(row, files["models"][row["model"]], device, shares["products"])

    def link(gb_s, hop):
        return {"bandwidth": f"{gb_s:g}GB/s", "latency": f"{nccl['hop_us'][hop]}us"}

    hop = "nvlink" if device["nvlink_gb_s"] else "pcie"
    links = {"within_host": link(cluster["within_host_gb_s"] * shares["links"], hop),
             "collective": f"{nccl['collective_us']}us"}
    if cluster["between_hosts_gb_s"]:
        links["between_hosts"] = link(cluster["between_hosts_gb_s"] * NETWORK, "network")
    return {"hosts": row["hosts"], "devices": row["devices"], "kind": "gpu", "memory": f"{device['memory_gib']}GiB",
            "peak": f"{device['bf16_tflops']}TFLOP/s", "peak_fp32": f"{device['fp32_tflops']}TFLOP/s",
            "memory_bandwidth": f"{device['memory_gb_s']}GB/s",
            "shares": {"products": min(1.0, shares["products"] * factor), "attention": min(1.0, attention * factor),
                       "memory": MEMORY, "beside_communication": BESIDE_COMMUNICATION},
            "submit": "3us", "least_time": "3us", "links": links}


def config_of(row, files):
    model = {key: value for key, value in files["models"][row["model"]].items() if key != "parameters"}
    recompute = row["recompute"]
    # FSDP gathers the next unit however large both are; the default would hold blocks of 70B one at a time.
    zero = {"stage": row["stage"], "stage3_max_live_parameters": 10**12}
    if not files["publications"][row["publication"]].get("overlap", True):
        zero["overlap_comm"] = False
    config = {"model": model, "data": {"train": "tokens.bin", "sequence_length": row["sequence"]},
              "train_micro_batch_size_per_gpu": row["micro_batch"], "gradient_accumulation_steps": row["accumulation"],
              "train_batch_size": check.global_batch(row),
              "zero_optimization": zero,
              "mesh": {axis: value for axis, value in row["mesh"].items() if axis != "sequence_parallel"},
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
              "run": {"device": "cuda", "steps": 2, "sums": "fast"},
              "reduction": row.get("reduction", "every_micro_batch")}
    if row["dtype"] != "fp32":
        config[row["dtype"]] = {"enabled": True}
    if recompute == "full":
        config["activation_checkpointing"] = {"recompute": "full"}
    elif isinstance(recompute, dict):
        config["activation_checkpointing"] = {"recompute": recompute["mode"], "tensors": recompute["tensors"]}
    if row["mesh"].get("sequence_parallel"):
        config["mesh"]["sequence_parallel"] = True
    return config


class Simulator:
    """Runs zero_train --simulate, once for a row and factor."""

    def __init__(self, program, files, folder):
        self.program, self.files, self.folder, self.said = program, files, pathlib.Path(folder), {}

    def run(self, row, factor=1.0):
        """What zero_train printed; RuntimeError with its last line if it failed."""
        key = row["name"], factor
        if key not in self.said:
            paths = {name: self.folder / f"{name}.json" for name in ("config", "cluster")}
            paths["config"].write_text(json.dumps(config_of(row, self.files)))
            paths["cluster"].write_text(json.dumps(cluster_of(row, self.files, factor)))
            command = [self.program, "--config", str(paths["config"]), "--simulate", str(paths["cluster"]), "--json"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                lines = done.stderr.strip().splitlines()
                raise RuntimeError(lines[-1] if lines else f"status {done.returncode}")
            self.said[key] = json.loads(done.stdout)
        return self.said[key]

    def seconds(self, row, factor=1.0):
        return self.run(row, factor)["step_seconds"]

    def factor(self, row, published):
        """At which the step is the published one, within 0.1 %; None where the device's peak gives none so short."""
        high = 1 / shares_of(self.files["clusters"][row["cluster"]]["device"])["products"]
        low = high / 32
        if not self.seconds(row, high) <= published <= self.seconds(row, low):
            return None
        while high / low > 1.001:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self.seconds(row, middle) > published else (low, middle)
        return high


def smallest(rows, results, group):
    """The row of each group of at least two that has the fewest ranks, of these the fewest parameters."""
    members = {}
    for row in rows:
        members.setdefault(group(row), []).append(row)
    return {key: min(those, key=lambda row: (results[row["name"]]["ranks"], results[row["name"]]["parameters"]))
            for key, those in members.items() if len(those) > 1}


class Column:
    """Errors of one way to predict."""

    def __init__(self, title):
        self.title, self.errors, self.shares, self.giving = title, {}, {}, {}

    def add(self, result, seconds):
        self.errors[result["name"]] = seconds / result["step_seconds"] - 1
        self.shares[result["name"]] = result["share_of_peak"] * result["step_seconds"] / seconds

    def text(self, name):
        if name in self.errors:
            return f"{self.errors[name]:+8.1%}"
        return f"{self.giving[name]:>8}" if name in self.giving else f"{'-':>8}"

    def summary(self, results):
        if not self.errors:
            return f"{self.title}: 0 rows"
        off = {name: abs(error) for name, error in self.errors.items()}
        worst = max(off, key=lambda name: abs(math.log1p(self.errors[name])))
        pairs = check.pairs([result for result in results if result["name"] in self.errors])
        ordered = [(a["share_of_peak"] < b["share_of_peak"]) == (self.shares[a["name"]] < self.shares[b["name"]])
                   for a, b in pairs]
        return (f"{self.title}: {len(off)} rows: mean error {sum(off.values()) / len(off):.1%}, worst "
                f"{self.errors[worst]:+.1%} ({worst}); order right in {sum(ordered)} of {len(ordered)} pairs")


def predict_from_smallest(simulator, rows, results, chosen, name):
    """The column in which one run of each group gives the factor of the others."""
    group = GROUPINGS[name]
    column = Column(f"from one run of the {name}")
    giving = smallest(rows, results, group)
    for row in chosen:
        giver = giving.get(group(row))
        if giver is None:
            continue
        try:
            factor = simulator.factor(giver, results[giver["name"]]["step_seconds"])
        except RuntimeError:
            factor = None
        if factor is None:
            column.giving[row["name"]] = "none"
        elif row is giver:
            column.giving[row["name"]] = f"x {factor:.2f}"
        else:
            column.add(results[row["name"]], simulator.seconds(row, factor))
    return column


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="ZERO_TRAIN")
    parser.add_argument("names", metavar="NAME", nargs="*")
    parser.add_argument("--from-smallest", action="store_true", help="predict the rows of a group from its smallest")
    arguments = parser.parse_args()
    files = {**check.load("publications"), **check.load("models"), **check.load("devices")}
    wrong, failed = [], {}
    rows = [row for row in check.load("runs")["runs"] if row["expressible"] is True]
    results = {row["name"]: result for row in rows if (result := check.check_row(row, files, wrong))}
    rows = [row for row in rows if row["name"] in results]
    chosen = [row for row in rows if not arguments.names or row["name"].startswith(tuple(arguments.names))]
    columns = [Column("nothing fitted")]
    with tempfile.TemporaryDirectory() as scratch:
        simulator = Simulator(arguments.program, files, scratch)
        for row in chosen:
            try:
                columns[0].add(results[row["name"]], simulator.seconds(row))
            except RuntimeError as error:
                failed[row["name"]] = str(error)
        if arguments.from_smallest:
            able = [row for row in rows if row["name"] not in failed]
            columns += [predict_from_smallest(simulator, able, results, [row for row in chosen if row in able], name)
                        for name in GROUPINGS]
        print(f"{'run':28} {'ranks':>6} {'published, s':>12} {'predicted, s':>12}    error"
              f"{' by program by model' if arguments.from_smallest else ''}  limited by")
        for row in chosen:
            result = results[row["name"]]
            start = f"{row['name']:28} {result['ranks']:6} {result['step_seconds']:12.4g}"
            if row["name"] in failed:
                print(f"{start}  {failed[row['name']]}")
                continue
            said = simulator.run(row)
            print(f"{start} {said['step_seconds']:12.4g} {'   '.join(column.text(row['name']) for column in columns)}"
                  f"  {said['limited_by']}{' *' if row.get('assumed') else ''}")
    for column in columns:
        print(column.summary(results.values()))
    print(f"{len(failed)} failed; * the row has an assumed input"
          f"{'; x: gives the factor' if arguments.from_smallest else ''}")
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
