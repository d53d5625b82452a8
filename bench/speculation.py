#!/usr/bin/env python3
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""What guesses gain: zero_generate with --draft beside without, as a table in markdown.

usage: bench/speculation.py [--data data/tokens] [--work data/speculation] [--programs build/bin]

Needs the text that launch/quickstart.sh leaves in data/tokens, and Python alone. Unless they are
there, two models of bytes are trained first and stay in --work: a target of 10 layers x 384 and a
draft of 4 x 256, 5.5 times smaller (some 8 minutes on two cores). Prompts come from the part of
the text that is kept for validation; they are answered greedily, one at a time, in turns with each
way to guess. Loading is not counted. An answer that guesses change ends the script with status 1.
"""

import argparse
import array
import glob
import json
import os
import re
import shlex
import statistics
import subprocess
import sys

HEADER_BYTES = 1024  # of a token file; uint16 tokens follow
SHAPES = {"target": {"layers": 10, "width": 384, "heads": 6, "learning_rate": 1e-3},
          "draft": {"layers": 4, "width": 256, "heads": 4, "learning_rate": 2e-3}}


def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="data/tokens", help="token files of bytes")
    parser.add_argument("--work", default="data/speculation", help="configurations and models")
    parser.add_argument("--programs", default="build/bin", help="zero_train and zero_generate")
    parser.add_argument("--steps", type=int, default=500, help="of training")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="turns; medians are printed")
    parser.add_argument("--prompts", type=int, default=8, help="of 64 bytes")
    parser.add_argument("--tokens", type=int, default=150, help="of each answer")
    parser.add_argument("--dtypes", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--most", type=int, default=6, help="tokens to guess in a step, at most")
    parser.add_argument("--before", default="", metavar="COMMAND",
                        help="what each turn is started under: 'taskset -c 0,1'")
    return parser.parse_args()


def fail(message):
    sys.exit(f"speculation.py: {message}")


def configuration(arguments, name):
    shape = dict(SHAPES[name])
    rate = shape.pop("learning_rate")
    folder = os.path.join(arguments.work, name)
    return {
        "model": {"family": "gpt2", "context": 256, "vocabulary": 256, **shape},
        "data": {"train": arguments.data, "sequence_length": 256, "shuffle": True,
                 "validation": os.path.join(arguments.data, "validation.bin")},
        "run": {"steps": arguments.steps, "seed": 1, "threads": arguments.threads,
                "log": folder + ".log",
                "checkpoint": {"folder": folder, "every_minutes": 5, "keep_last": 1}},
        "train_batch_size": 8, "train_micro_batch_size_per_gpu": 8,
        "bf16": {"enabled": True}, "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW",
                      "params": {"lr": rate, "betas": [0.9, 0.95], "weight_decay": 0.1}},
        "scheduler": {"type": "WarmupCosineLR",
                      "params": {"warmup_num_steps": 50, "cos_min_ratio": 0.1}},
    }


def train_missing(arguments):
    for name in SHAPES:
        folder = os.path.join(arguments.work, name)
        if os.path.isdir(os.path.join(folder, f"step_{arguments.steps:08d}")):
            continue
        if os.path.isdir(folder):
            fail(f"{folder} has no checkpoint of step {arguments.steps}; remove it, or name --steps")
        if not glob.glob(os.path.join(arguments.data, "train_*.bin")):
            fail(f"{arguments.data} has no train_*.bin; run launch/quickstart.sh, or name --data")
        os.makedirs(arguments.work, exist_ok=True)
        path = os.path.join(arguments.work, name + ".json")
        with open(path, "w") as file:
            json.dump(configuration(arguments, name), file, indent=2)
        command = [os.path.join(arguments.programs, "zero_train"), "--config", path]
        if subprocess.run(command, stdout=sys.stderr).returncode != 0:
            fail(f"{shlex.join(command)} failed")


def write_prompts(arguments, path):
    tokens = array.array("H")
    with open(os.path.join(arguments.data, "validation.bin"), "rb") as file:
        tokens.frombytes(file.read()[HEADER_BYTES:])
    stride = len(tokens) // arguments.prompts
    with open(path, "w") as file:
        for i in range(arguments.prompts):
            ids = tokens[i * stride:i * stride + 64].tolist()
            file.write(json.dumps({"ids": ids, "max_tokens": arguments.tokens}) + "\n")


def ways(arguments):
    """Flags by the name of a way to guess; the first does not."""
    draft = ["--draft", os.path.join(arguments.work, "draft")]
    drafts = {f"draft, {n}": draft + ["--draft-tokens", str(n)]
              for n in range(1, arguments.most + 1)}
    return {"none": [], **drafts, "prompt, 4": ["--draft", "prompt"]}


def turn(arguments, prompts, flags):
    """Tokens/s, the part of guessed tokens that were right (None: none were guessed), the ids."""
    command = shlex.split(arguments.before) + [
        os.path.join(arguments.programs, "zero_generate"), "--model",
        os.path.join(arguments.work, "target"), "--tokenizer", "bytes", "--file", prompts,
        "--json", "--requests", "1", "--device", "cpu", "--threads", str(arguments.threads)]
    ended = subprocess.run(command + flags, capture_output=True, text=True)
    if ended.returncode != 0:
        fail(f"{shlex.join(command + flags)}: status {ended.returncode}: {ended.stderr.strip()}")
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    ids = {answer["line"]: answer["ids"] for answer in answers}
    tokens = sum(len(each) for each in ids.values())
    found = re.search(r"(\d+) of (\d+) guessed tokens were right", ended.stderr)
    right = int(found[1]) / int(found[2]) if found else None
    return tokens / max(answer["seconds"] for answer in answers), right, ids


def measure(arguments, prompts):
    """Turns by (dtype, way)."""
    turns = {}
    for dtype in arguments.dtypes:
        for round in range(arguments.rounds):
            for way, flags in ways(arguments).items():
                print(f"speculation.py: round {round + 1} of {arguments.rounds}: {dtype}, {way}",
                      file=sys.stderr)
                found = turn(arguments, prompts, ["--dtype", dtype] + flags)
                if found[2] != turns.get((dtype, "none"), [found])[0][2]:
                    fail(f"{dtype}, {way}: the answers are not those without guesses")
                turns.setdefault((dtype, way), []).append(found)
    return turns


def print_table(arguments, turns):
    print("| dtype | guesses, at most | right | tokens/s | over none |")
    print("|---|---|---:|---:|---:|")
    for dtype in arguments.dtypes:
        none = statistics.median(rate for rate, *_ in turns[dtype, "none"])
        for way in ways(arguments):
            rate = statistics.median(rate for rate, *_ in turns[dtype, way])
            right = turns[dtype, way][0][1]
            share = "" if right is None else f"{100 * right:.0f} %"
            print(f"| {dtype} | {way} | {share} | {rate:.0f} | {rate / none:.2f} |")


def main():
    arguments = options()
    for program in "zero_train", "zero_generate":
        path = os.path.join(arguments.programs, program)
        if not os.access(path, os.X_OK):
            fail(f"{path} is not a program; build it: cmake --preset release && "
                 "cmake --build build, or name its folder: --programs")
    train_missing(arguments)
    prompts = os.path.join(arguments.work, "prompts.jsonl")
    write_prompts(arguments, prompts)
    print_table(arguments, measure(arguments, prompts))


if __name__ == "__main__":
    main()
