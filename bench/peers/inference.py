# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""zero_generate beside transformers and llama.cpp: tokens/s of GPT-2 124M with random weights.

usage: PYTHON bench/peers/inference.py [--zero build/bin/zero_generate] [--threads 2] [--rounds 3]

Prints a table in markdown. PYTHON is one of a virtual environment with the peers; llama.cpp is
compiled there, for this very processor (its binary packages stop at AVX2), in 5 to 20 minutes:

    python3 -m venv peers
    peers/bin/pip install torch transformers numpy gguf llama-cpp-python
    peers/bin/python bench/peers/inference.py

Each turn loads the weights (zero_generate: once for each workload), runs each workload of
inference_common.py once briefly and then once by the clock. Loading is not counted; prompts are. All generate greedily, from
the same weights; the line below the table tells how far their answers in fp32 agree. transformers
has fp32 and bf16 only: on CPUs it quantizes by other packages.
"""

import argparse
import importlib.util
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

from inference_common import WARM_UP_TOKENS, WORKLOADS, gguf_file, hugging_face_folder

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
PACKAGES = {"torch": "torch", "transformers": "transformers", "numpy": "numpy", "gguf": "gguf",
            "llama_cpp": "llama-cpp-python"}
FLAGS = {"fp32": ["--dtype", "fp32"], "bf16": ["--dtype", "bf16"],
         "8 bits": ["--dtype", "bf16", "--weights", "int8"],
         "4 bits": ["--dtype", "bf16", "--weights", "q4"]}
PEERS = ["transformers", "llama.cpp"]


def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zero", default="build/bin/zero_generate", help="the program")
    parser.add_argument("--threads", type=int, default=2, help="of each")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each; medians are printed")
    parser.add_argument("--formats", nargs="+", choices=FLAGS, default=list(FLAGS))
    parser.add_argument("--before", default="", metavar="COMMAND",
                        help="what each turn is started under: 'taskset -c 0,1'")
    return parser.parse_args()


def check(arguments):
    missing = [package for module, package in PACKAGES.items()
               if importlib.util.find_spec(module) is None]
    if missing:
        sys.exit(f"inference.py: {sys.executable} lacks {', '.join(missing)}; expected a Python "
                 f"with them: pip install {' '.join(missing)}")
    if not os.access(arguments.zero, os.X_OK):
        sys.exit(f"inference.py: {arguments.zero} is not a program; build it: "
                 "cmake --preset release && cmake --build build, or name it: --zero FILE")


def output_of(arguments, command):
    command = shlex.split(arguments.before) + command
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        lines = ended.stderr.strip().splitlines() or ["no message"]
        sys.exit(f"inference.py: {shlex.join(command)[:200]}: status {ended.returncode}: "
                 f"{lines[-1]}")
    return ended.stdout


def write_prompts(path, workload):
    """As many that warm up before those that count."""
    tokens = min(WARM_UP_TOKENS, workload.tokens)
    with open(path, "w") as file:
        for seed, most in (1, tokens), (2, workload.tokens):
            for ids in workload.prompts(seed):
                file.write(json.dumps({"ids": ids, "max_tokens": most}) + "\n")


def zero_turn(arguments, folder, form):
    seconds, ids = {}, {}
    for key, workload in WORKLOADS.items():
        prompts = os.path.join(folder, "prompts.jsonl")
        write_prompts(prompts, workload)
        output = output_of(arguments, [
            arguments.zero, "--model", hugging_face_folder(folder), "--file", prompts, "--json",
            "--requests", str(workload.sequences), "--device", "cpu",
            "--threads", str(arguments.threads)] + FLAGS[form])
        answers = sorted((json.loads(line) for line in output.splitlines()),
                         key=lambda answer: answer["line"])
        ends = [answer["seconds"] for answer in answers]
        # Those that count begin as the first that warm up end, beside the others' last tokens.
        seconds[key] = max(ends[workload.sequences:]) - min(ends[:workload.sequences])
        ids[key] = [answer["ids"] for answer in answers[workload.sequences:]]
    return {"name": "zero_generate", "version": "", "seconds": seconds, "ids": ids}


def peer_turn(arguments, folder, form, peer):
    if peer == "transformers":
        command = ["inference_transformers.py", hugging_face_folder(folder), form]
    else:
        command = ["inference_llama.py", gguf_file(folder, form)]
    command[0] = os.path.join(SCRIPTS, command[0])
    output = output_of(arguments, [sys.executable] + command + [str(arguments.threads)])
    return json.loads(output.splitlines()[-1])


def measure(arguments, folder):
    """Turns by (contender, format)."""
    turns = {}
    for round in range(arguments.rounds):
        for form in arguments.formats:
            for name in ["zero_generate"] + PEERS:
                if name == "transformers" and "bits" in form:
                    continue  # on CPUs it quantizes by other packages only
                print(f"inference.py: round {round + 1} of {arguments.rounds}: {name}, {form}",
                      file=sys.stderr)
                turn = (zero_turn(arguments, folder, form) if name == "zero_generate"
                        else peer_turn(arguments, folder, form, name))
                for key, workload in WORKLOADS.items():
                    found = [len(answer) for answer in turn["ids"][key]]
                    if found != [workload.tokens] * workload.sequences:
                        sys.exit(f"inference.py: {name}, {form}, {key}: answers of {found} tokens; "
                                 f"expected {workload.sequences} of {workload.tokens}")
                turns.setdefault((name, form), []).append(turn)
    return turns


def rate(turns, key):
    seconds = statistics.median(turn["seconds"][key] for turn in turns)
    return WORKLOADS[key].counted() / seconds


def print_table(arguments, turns):
    names = ["zero_generate"]
    for peer in PEERS:
        one = next((all[0] for (name, _), all in turns.items() if name == peer), None)
        names.append(f"{one['name']} {one['version']}".strip() if one else peer)
    print(f"| weights | tokens/s of | {' | '.join(names)} | zero_generate over the better |")
    print("|---|---|" + "---:|" * (len(names) + 1))
    for form in arguments.formats:
        for key in WORKLOADS:
            rates = [rate(turns[name, form], key) if (name, form) in turns else None
                     for name in ["zero_generate"] + PEERS]
            cells = [f"{value:.4g}" if value else "-" for value in rates]
            best = max(value for value in rates[1:] if value)
            print(f"| {form} | {key} | {' | '.join(cells)} | {rates[0] / best:.2f} |")


def common_ids(turns, key):
    """Of all contenders' first answers in fp32, how many ids are the same from the first on."""
    answers = [all[0]["ids"][key][0] for (_, form), all in turns.items() if form == "fp32"]
    same = [len(set(ids)) == 1 for ids in zip(*answers)]
    return same.index(False) if False in same else len(same)


def main():
    arguments = options()
    check(arguments)
    with tempfile.TemporaryDirectory() as folder:
        output_of(arguments,
                  [sys.executable, os.path.join(SCRIPTS, "inference_model.py"), folder])
        turns = measure(arguments, folder)
    print_table(arguments, turns)
    if "fp32" in arguments.formats:
        key = "1 sequence"
        print(f"\nThe answers to {key} in fp32 agree in the first {common_ids(turns, key)} of "
              f"{WORKLOADS[key].tokens} tokens.")


if __name__ == "__main__":
    main()
