# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
"""Opens the weights of a checkpoint with transformers, and compares their loss with the one that the run recorded.

    python check_transformers.py FOLDER/step_N/weights --tokens validation.bin --log run.log

FOLDER/step_N/weights is opened as it is. The loss is the mean over the sequences of --tokens, in fp32, of the length
that the checkpoint's configuration tells; run.log must hold the validation_loss of step N over the same tokens.
Status 1 if they differ by more than --tolerance of the recorded one. Needs torch and transformers;
check_transformers.sh makes such checkpoints.
"""
import argparse
import json
import pathlib
import sys

import numpy
import torch
import transformers

MAGIC, HEADER, TOKEN = 20240520, 256, {1: "<u2", 2: "<u4"}  # llm.c's token files, launch/data/token_file.h


def tokens_of(path):
    header = numpy.fromfile(path, "<i4", HEADER)
    if len(header) < HEADER or header[0] != MAGIC or header[1] not in TOKEN:
        sys.exit(f"{path}: begins with {header[:2].tolist()}, expected a token file: {MAGIC} and version 1 or 2")
    return numpy.fromfile(path, TOKEN[int(header[1])], int(header[2]), offset=HEADER * 4).astype(numpy.int64)


def recorded_loss(path, step):
    found = [line for line in map(json.loads, path.read_text().splitlines())
             if line.get("step") == step and line.get("validation_loss") is not None]
    if not found:
        sys.exit(f"{path}: holds no validation_loss of step {step}, that of the checkpoint; set run.validation_every")
    return found[-1]["validation_loss"]


def loss_of(model, tokens, length):
    total = 0.0
    count = (len(tokens) - 1) // length
    if count == 0:
        sys.exit(f"--tokens: {len(tokens)} tokens are shorter than one sequence of {length} and its target")
    with torch.no_grad():
        for sequence in range(count):
            begin = sequence * length
            row = torch.from_numpy(tokens[begin:begin + length + 1])
            logits = model(input_ids=row[None, :-1]).logits[0]
            total += float(torch.nn.functional.cross_entropy(logits, row[1:], reduction="sum"))
    return total / (count * length)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=pathlib.Path, help="FOLDER/step_N/weights")
    parser.add_argument("--tokens", type=pathlib.Path, required=True, help="the run's data.validation")
    parser.add_argument("--log", type=pathlib.Path, required=True, help="the run's run.log")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    given = parser.parse_args()
    index = json.loads((given.weights.resolve().parent / "index.json").read_text())
    length = index["extra"]["configuration"]["data.sequence_length"]
    # A tensor that is missing in the files would be drawn at random, one too many be passed over.
    model, said = transformers.AutoModelForCausalLM.from_pretrained(given.weights, dtype=torch.float32,
                                                                    output_loading_info=True)
    if wrong := {what: list(names) for what, names in said.items() if names}:
        sys.exit(f"{given.weights}: transformers does not take the files as they are: {wrong}")
    expected = recorded_loss(given.log, index["step"])
    found = loss_of(model.eval(), tokens_of(given.tokens), length)
    apart = abs(found - expected) / expected
    print(f"{type(model).__name__}, step {index['step']}: transformers {transformers.__version__}, torch "
          f"{torch.__version__}: loss {found:.7f}; recorded {expected:.7f}; {apart:.1e} apart")
    if not apart <= given.tolerance:
        sys.exit(f"{given.weights}: the losses are {apart:.1e} apart, expected at most {given.tolerance:.1e}")


if __name__ == "__main__":
    main()
