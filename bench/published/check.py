#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the files of this folder and prints the step time of each row.

check.py            exits with 1 if a row lacks a key, has a value out of range, or contradicts itself
check.py --table    also prints each row's step, tokens/s and share of peak
check.py --json     prints the same as JSON, for programs that compare
"""

import argparse
import itertools
import json
import math
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
TOLERANCE = 0.03  # between two published figures, beyond their rounding
KEYS = ("name publication where model cluster hosts devices stage mesh sequence micro_batch accumulation dtype "
        "recompute published expressible").split()
OPTIONAL = "program chunks reduction gradients batch memory_gib rounded_to assumed differs open".split()
FIGURES = "step_seconds tokens_per_second_per_gpu tflops_per_gpu mfu training_days".split()
AXES = "replicate shard tensor sequence_parallel pipeline context".split()


def load(name):
    with open(FOLDER / f"{name}.json", encoding="utf-8") as file:
        return json.load(file)


def block_parameters(model):
    c = model["width"]
    if model["family"] == "gpt2":
        return 12 * c * c + 13 * c
    key_value = 2 * model["kv_heads"] * (c // model["heads"])
    return 2 * c * c + c * key_value + 3 * c * model["intermediate"] + 2 * c + (
        c + key_value if model.get("qkv_bias") else 0)


def sizes(model):
    """Parameters in all, those of the token table, and the width of all heads."""
    c, blocks = model["width"], model["layers"] * block_parameters(model)
    table = model["vocabulary"] * c
    if model["family"] == "gpt2":
        return blocks + 2 * c + table + model["context"] * c, table, c
    tables = table if model.get("head") == "tied" else 2 * table
    return blocks + c + tables, table, c


def flop_per_token(formula, model, sequence):
    """FLOP that a publication counts for a token of a step; None if its formula is not known."""
    parameters, table, width = sizes(model)
    layers, c, vocabulary = model["layers"], model["width"], model["vocabulary"]
    attention = 12 * layers * width * sequence  # all pairs, forward and backward
    if formula == "palm":
        return 6 * parameters + attention
    if formula == "palm_without_embedding":
        return 6 * (parameters - table) + attention
    if formula == "causal":
        return 6 * parameters - (0 if model.get("head") == "tied" else 6 * table) + attention / 2
    if formula == "megatron":
        return 72 * layers * c * c * (1 + sequence / (6 * c) + vocabulary / (12 * layers * c))
    if formula == "megatron_recompute":
        return 96 * layers * c * c * (1 + sequence / (6 * c) + vocabulary / (16 * layers * c))
    return None


def rounding(value, unit=None):
    """Half of the last printed digit, or of the unit that all such are multiples of, as a share of the figure."""
    text = repr(value)
    decimals = len(text.split(".")[1]) if "." in text else 0
    return 0.5 * (unit or 10**-decimals) / value


def estimates(row, model, publication, peak, world):
    """Seconds of a step by each published figure that can be converted, with its rounding."""
    published, batch = row["published"], global_batch(row)
    tokens = batch * row["sequence"] / world
    flop = flop_per_token(publication["formula"], model, row["sequence"])
    found = {}
    if "step_seconds" in published:
        found["step_seconds"] = published["step_seconds"]
    if "tokens_per_second_per_gpu" in published:
        found["tokens_per_second_per_gpu"] = tokens / published["tokens_per_second_per_gpu"]
    if "tflops_per_gpu" in published and flop:
        found["tflops_per_gpu"] = tokens * flop / (published["tflops_per_gpu"] * 1e12)
    if "mfu" in published and flop:
        found["mfu"] = tokens * flop / (published["mfu"] * peak)
    if "training_days" in published:  # of 300 B tokens
        found["training_days"] = published["training_days"] * 86400 * batch * row["sequence"] / 300e9
    units = row.get("rounded_to", publication.get("rounded_to", {}))
    return {key: (seconds, rounding(published[key], units.get(key))) for key, seconds in found.items()}


def data_ranks(row):
    return row["mesh"].get("replicate", 1) * row["mesh"].get("shard", 1)


def global_batch(row):
    return row.get("batch") or row["micro_batch"] * row["accumulation"] * data_ranks(row)


def check_row(row, files, wrong):
    def expect(good, text):
        if not good:
            wrong.append(f"runs.json: {row.get('name', '?')}: {text}")

    missing = [key for key in KEYS if key not in row]
    unknown = [key for key in row if key not in KEYS + OPTIONAL]
    expect(not missing, f"lacks {', '.join(missing)}")
    expect(not unknown, f"has the unknown keys {', '.join(unknown)}")
    for key, names in (("publication", "publications"), ("model", "models"), ("cluster", "clusters")):
        expect(row.get(key) in files[names], f"{key}: found {row.get(key)!r}, which is not in {names}")
    if any(text.startswith(f"runs.json: {row.get('name', '?')}:") for text in wrong):
        return None
    model, cluster = files["models"][row["model"]], files["clusters"][row["cluster"]]
    device = files["devices"][cluster["device"]]
    mesh, world = row["mesh"], row["hosts"] * row["devices"]
    ranks = math.prod(mesh.get(axis, 1) for axis in AXES if axis != "sequence_parallel")
    expect(all(axis in AXES for axis in mesh), f"mesh: found {list(mesh)}, expected {AXES}")
    expect(ranks == world, f"mesh: found {ranks} ranks, expected hosts x devices = {world}")
    expect(row["devices"] <= cluster["devices_per_host"], "devices: more than the cluster's hosts have")
    expect(row["hosts"] == 1 or cluster["between_hosts_gb_s"], "hosts: the cluster has one host")
    expect(row["stage"] in (0, 1, 2, 3), f"stage: found {row['stage']}, expected 0 to 3")
    expect(set(row["published"]) <= set(FIGURES) and row["published"], f"published: expected some of {FIGURES}")
    expect(0 < row["published"].get("mfu", 0.5) < 1, "published.mfu: expected a share between 0 and 1")
    expect(row["sequence"] <= model["context"] or row["expressible"] is not True, "sequence: longer than the context")
    expect(row["expressible"] is True or isinstance(row["expressible"], str), "expressible: expected true or a reason")
    if row["expressible"] is True:
        stages, chunks = mesh.get("pipeline", 1), row.get("chunks", 1)
        expect("context" not in mesh, "mesh: an axis that the engine does not have")
        expect((stages > 1) == ("chunks" in row), "chunks: expected of a pipeline's stage, and only there")
        expect(row["hosts"] % stages == 0, f"hosts: found {row['hosts']}, expected as many for each of {stages} stages")
        expect(chunks == 1 or (row["accumulation"] or 0) % stages == 0,
               f"accumulation: found {row['accumulation']}, interleaved {stages} stages take a multiple of that")
        expect(row["dtype"] in ("bf16", "fp16", "fp32"), f"dtype: found {row['dtype']!r}")
        product = (row["micro_batch"] or 0) * (row["accumulation"] or 0) * data_ranks(row)
        expect(product == global_batch(row) > 0, f"batch: found {row.get('batch')}, expected {product}")
    publication = files["publications"][row["publication"]]
    peak = device["bf16_tflops"] * 1e12
    found = estimates(row, model, publication, peak, world)
    expect(found, "published: nothing that can be converted to seconds")
    if not found:
        return None
    for (first, (seconds, half)), (second, (other, other_half)) in itertools.combinations(found.items(), 2):
        off, allowed = abs(seconds / other - 1), TOLERANCE + half + other_half
        expect(off <= allowed, f"{first} says {seconds:.4g} s, {second} {other:.4g} s: {off:.1%} apart, "
               f"expected {allowed:.1%} at most")
    key, (seconds, half) = next(iter(found.items()))
    rate = global_batch(row) * row["sequence"] / world / seconds
    share = rate * flop_per_token("palm", model, row["sequence"]) / peak
    expect(0.05 < share < 0.9, f"published: {share:.2f} of peak is out of range")
    return {"name": row["name"], "by": key, "step_seconds": seconds, "rounding": half, "ranks": world,
            "tokens_per_second_per_gpu": rate, "share_of_peak": share, "parameters": sizes(model)[0],
            "expressible": row["expressible"] is True,
            "group": f"{row['publication']}, {row['cluster']}"}


def pairs(results):
    """Pairs of expressible rows of a publication and cluster whose shares of peak differ by over 1 % and rounding."""
    rows = [row for row in results if row["expressible"]]
    return [(a, b) for a, b in itertools.combinations(rows, 2) if a["group"] == b["group"] and
            abs(math.log(a["share_of_peak"] / b["share_of_peak"])) > 0.01 + a["rounding"] + b["rounding"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print each row")
    parser.add_argument("--json", action="store_true", help="print each row as JSON")
    arguments = parser.parse_args()
    files = {**load("publications"), **load("models"), **load("devices")}
    runs, wrong = load("runs")["runs"], []
    for name, model in files["models"].items():
        count = sizes(model)[0]
        if model.get("parameters", count) != count:
            wrong.append(f"models.json: {name}: found {model['parameters']} parameters, its sizes give {count}")
    for name, cluster in files["clusters"].items():
        if cluster["device"] not in files["devices"]:
            wrong.append(f"devices.json: {name}: found the device {cluster['device']!r}, which is not there")
    programs = load("programs")["programs"]
    for name, publication in files["publications"].items():
        kernels = publication.get("kernels", {})
        for kernel in kernels.values() if isinstance(kernels, dict) else [kernels]:
            if kernel not in programs:
                wrong.append(f"publications.json: {name}: found the kernels {kernel!r}, which are not in programs.json")
    names = [row.get("name") for row in runs]
    wrong += [f"runs.json: {name}: is there twice" for name in sorted({n for n in names if names.count(n) > 1})]
    results = [result for row in runs if (result := check_row(row, files, wrong))]
    if arguments.json:
        print(json.dumps({"runs": results, "pairs": [[a["name"], b["name"]] for a, b in pairs(results)]}, indent=1))
    elif arguments.table:
        print(f"{'run':28} {'ranks':>6} {'step, s':>9} {'tokens/s':>9} {'of peak':>8}  by")
        for row in results:
            note = "" if row["expressible"] else ", not expressible"
            print(f"{row['name']:28} {row['ranks']:6} {row['step_seconds']:9.4g} "
                  f"{row['tokens_per_second_per_gpu']:9.4g} {row['share_of_peak']:8.3f}  {row['by']}{note}")
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    if not arguments.json:
        expressible = sum(row["expressible"] for row in results)
        print(f"{len(runs)} rows, {expressible} expressible, {len(pairs(results))} pairs to order, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
