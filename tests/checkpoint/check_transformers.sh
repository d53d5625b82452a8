#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Whether transformers opens the weights of our checkpoints as they are, with the losses that the runs recorded: trains
# a tiny model of each kind on the text of docs/ with the programs in build/bin, then runs check_transformers.py.
#
#   tests/checkpoint/check_transformers.sh PYTHON
#
# PYTHON has torch and transformers: python3 -m venv V && V/bin/pip install torch transformers; then V/bin/python.
set -euo pipefail
cd "$(dirname "$0")/../.."
case ${1--h} in -h | --help) sed -n '5,10s/^# \{0,1\}//p' tests/checkpoint/check_transformers.sh; exit 0 ;; esac
python=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build/bin/zero_prepare --out "$work" --validation 0.05 docs/*.md

# Files of 200 kB: several of each kind, with their index, so that these are opened too.
check() {  # name model stage
  cat >"$work/$1.json" <<JSON
{
  "model": {$2, "layers": 2, "width": 64, "heads": 4, "context": 64, "vocabulary": 256},
  "data": {"train": "$work", "validation": "$work/validation.bin", "sequence_length": 64, "shuffle": true},
  "run": {"steps": 60, "seed": 1, "threads": 1, "log": "$work/$1.log", "validation_every": 30,
          "checkpoint": {"folder": "$work/$1", "every_steps": 30, "file_bytes": 200000}},
  "train_batch_size": 8, "train_micro_batch_size_per_gpu": 4,
  "zero_optimization": {"stage": $3}, "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "betas": [0.9, 0.95], "weight_decay": 0.1}}
}
JSON
  build/bin/zero_train --config "$work/$1.json" --local-ranks 2 >"$work/$1.txt" || { cat "$work/$1.txt"; exit 1; }
  for weights in "$work/$1"/step_*/weights; do
    "$python" tests/checkpoint/check_transformers.py "$weights" --tokens "$work/validation.bin" --log "$work/$1.log"
  done
}

check gpt2 '"family": "gpt2"' 3
check llama '"family": "llama", "intermediate": 160, "kv_heads": 2' 1
check qwen3 '"family": "llama", "intermediate": 160, "kv_heads": 2, "head_norms": true, "head": "tied"' 2
check gemma3 '"family": "gemma3", "intermediate": 160, "kv_heads": 2, "window": 16, "local_layers": "0"' 3
