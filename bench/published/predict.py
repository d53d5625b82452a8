#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""Simulates the expressible rows of runs.json with zero_train, and prints each step beside the published one.

predict.py ZERO_TRAIN [NAME...]    rows whose name begins with one of NAME; all unless given; exits with 1 if a row
                                   contradicts itself (check.py), or cannot be simulated

Nothing is fitted to the rows. What a device reaches is in SHARES, with where it is from; links reach the shares that
devices.json has under "measured", and take the time that NCCL's own model gives a collective and a hop.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

import check

# Of a device's peaks. Products: bench/results.md (H100: 0.80 to 0.82 for the largest, 0.71 at width 768), ml-engineering
# (A100: 0.87), llmq's authors (Ada: 0.64). Attention: this engine's own on an H100, forward and backward together
# (docs/gpu.md); others were not measured. Memory: copies (0.88). Collectives take streaming multiprocessors: assumed 0.95.
SHARES = {
    "h100": {"products": 0.78, "attention": 0.32},
    "a100": {"products": 0.84, "attention": 0.40},
    "rtx": {"products": 0.64, "attention": 0.32},
}
COMMON = {"memory": 0.88, "beside_communication": 0.95}
NVLINK = {"h100": 0.82, "a100": 0.78, "rtx": 0.70}
NETWORK = 0.77


def kind_of(device):
    return next(kind for kind in SHARES if device.startswith(kind))


def cluster_of(row, files):
    cluster = files["clusters"][row["cluster"]]
    device = files["devices"][cluster["device"]]
    kind, nccl = kind_of(cluster["device"]), files["nccl"]

    def link(gb_s, hop):
        return {"bandwidth": f"{gb_s:g}GB/s", "latency": f"{nccl['hop_us'][hop]}us"}

    hop = "nvlink" if device["nvlink_gb_s"] else "pcie"
    links = {"within_host": link(cluster["within_host_gb_s"] * NVLINK[kind], hop),
             "collective": f"{nccl['collective_us']}us"}
    if cluster["between_hosts_gb_s"]:
        links["between_hosts"] = link(cluster["between_hosts_gb_s"] * NETWORK, "network")
    return {"hosts": row["hosts"], "devices": row["devices"], "kind": "gpu", "memory": f"{device['memory_gib']}GiB",
            "peak": f"{device['bf16_tflops']}TFLOP/s", "peak_fp32": f"{device['fp32_tflops']}TFLOP/s",
            "memory_bandwidth": f"{device['memory_gb_s']}GB/s", "shares": {**SHARES[kind], **COMMON},
            "submit": "3us", "least_time": "3us", "links": links}


def config_of(row, files):
    model = {key: value for key, value in files["models"][row["model"]].items() if key != "parameters"}
    recompute = row["recompute"]
    config = {"model": model, "data": {"train": "tokens.bin", "sequence_length": row["sequence"]},
              "train_micro_batch_size_per_gpu": row["micro_batch"], "gradient_accumulation_steps": row["accumulation"],
              "train_batch_size": check.global_batch(row),
              "zero_optimization": {"stage": row["stage"]},
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


def simulate(program, row, files, folder):
    paths = {name: folder / f"{name}.json" for name in ("config", "cluster")}
    paths["config"].write_text(json.dumps(config_of(row, files)))
    paths["cluster"].write_text(json.dumps(cluster_of(row, files)))
    command = [program, "--config", str(paths["config"]), "--simulate", str(paths["cluster"]), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"status {done.returncode}")
    return json.loads(done.stdout)


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) > 1 else 1
    program, names = sys.argv[1], sys.argv[2:]
    files = {**check.load("publications"), **check.load("models"), **check.load("devices")}
    rows = [row for row in check.load("runs")["runs"] if row["expressible"] is True]
    results, wrong, predicted, errors, failed = [], [], {}, {}, 0
    print(f"{'run':28} {'ranks':>6} {'published, s':>12} {'predicted, s':>12} {'error':>8}  limited by")
    with tempfile.TemporaryDirectory() as scratch:
        for row in rows:
            if names and not any(row["name"].startswith(name) for name in names):
                continue
            result = check.check_row(row, files, wrong)
            if result is None:
                continue
            try:
                said = simulate(program, row, files, pathlib.Path(scratch))
            except RuntimeError as error:
                failed += 1
                print(f"{row['name']:28} {result['ranks']:6} {result['step_seconds']:12.4g}  {error}")
                continue
            seconds = said["step_seconds"]
            error = seconds / result["step_seconds"] - 1
            results.append(result)
            predicted[row["name"]] = result["share_of_peak"] * result["step_seconds"] / seconds
            errors[row["name"]] = error
            mark = "" if not row.get("assumed") else " *"
            print(f"{row['name']:28} {result['ranks']:6} {result['step_seconds']:12.4g} {seconds:12.4g} "
                  f"{error:+8.1%}  {said['limited_by']}{mark}")
    ordered = [(a["share_of_peak"] < b["share_of_peak"]) == (predicted[a["name"]] < predicted[b["name"]])
               for a, b in check.pairs(results)]
    if errors:
        worst = max(errors, key=lambda name: abs(math.log1p(errors[name])))
        print(f"{len(errors)} rows: mean error {sum(map(abs, errors.values())) / len(errors):.1%}, worst "
              f"{errors[worst]:+.1%} ({worst}); order right in {sum(ordered)} of {len(ordered)} pairs; {failed} failed")
        print("* the row has an assumed input")
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
