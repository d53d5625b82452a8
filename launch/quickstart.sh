#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# From a clone to a trained language model: installs missing packages, builds Release into build/, encodes
# English text as tokens, trains a small GPT-2 at stage 3 with 8 ranks, and has it go on with a prompt. On 2 cores
# packages and building take some ten minutes, training three.
#
#   launch/quickstart.sh [--ranks N] [--steps N] [--fresh] [--text FILE...]
#
#   --ranks N       ranks to train with (8)
#   --steps N       optimizer steps (800)
#   --fresh         remove the checkpoints of an earlier run and begin anew
#   --text FILE...  texts to learn from; by default a dictionary of English, the content of the package
#                   dict-gcide, which is unpacked into data/packages/ without its server
#
# Data, configuration, checkpoints, log and weights are written to data/. Run again after Ctrl-C, it goes on where it
# was; Ctrl-C saves a checkpoint first; more steps than before train on.
set -euo pipefail

fail() { echo "quickstart: $1" >&2; exit 1; }

usage() { sed -n '5,18s/^# \{0,1\}//p' "$0"; }

whole_number() {  # option value
  [[ $2 =~ ^[1-9][0-9]{0,6}$ ]] || fail "$1 takes a whole number from 1, found '$2'"
}

# The dictionary as one text, of the package unpacked or installed; dictzip files are gzip files.
dictionary_text() {
  local file=/usr/share/dictd/gcide.dict.dz
  [ ! -e "data/packages$file" ] || file=data/packages$file
  zcat "$file"
}

# About 120 kB of the text are kept for validation, and never more than a tenth.
validation_part() {  # files...
  cat -- "$@" | wc -c | awk '{part = 120000 / ($1 + 1); print part < 0.1 ? part : 0.1}'
}

# bf16 if the processor multiplies it, fp32 otherwise.
bf16_enabled() {
  if grep -qsE ' (avx512_bf16|amx_bf16)( |$)' /proc/cpuinfo; then echo true; else echo false; fi
}

# Fewer ranks take more rows each, so that the global batch stays at 8 rows, or near it.
write_configuration() {  # file ranks steps
  local rows=$((8 / $2))
  [ "$rows" -gt 0 ] || rows=1
  cat >"$1" <<JSON
{
  "model": {"family": "gpt2", "layers": 4, "width": 192, "heads": 6, "context": 256, "vocabulary": 256},
  "data": {"train": "data/tokens", "validation": "data/tokens/validation.bin", "sequence_length": 256, "shuffle": true},
  "run": {"steps": $3, "seed": 1, "threads": 1, "log": "data/quickstart.log",
          "save_weights": "data/quickstart.safetensors",
          "checkpoint": {"folder": "data/checkpoints", "every_minutes": 0.5, "keep_last": 2}},
  "train_batch_size": $((rows * $2)), "train_micro_batch_size_per_gpu": $rows,
  "zero_optimization": {"stage": 3},
  "bf16": {"enabled": $(bf16_enabled)}, "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "betas": [0.9, 0.95], "weight_decay": 0.1}},
  "scheduler": {"type": "WarmupCosineLR",
                "params": {"warmup_num_steps": $(($3 < 200 ? $3 / 4 + 1 : 50)), "cos_min_ratio": 0.1}}
}
JSON
}

main() {
  local ranks=8 steps=800 fresh=no texts=() text
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help) usage; exit 0 ;;
      --ranks | --steps)
        whole_number "$1" "${2-}"
        [ "$1" = --ranks ] && ranks=$2 || steps=$2
        shift 2
        ;;
      --fresh) fresh=yes; shift ;;
      --text)
        shift
        while [ $# -gt 0 ] && [ "${1#--}" = "$1" ]; do texts+=("$(realpath -m -- "$1")"); shift; done
        [ ${#texts[@]} -gt 0 ] || fail "--text takes one file at least"
        ;;
      *) fail "unknown option '$1'; see launch/quickstart.sh --help" ;;
    esac
  done
  for text in "${texts[@]}"; do [ -r "$text" ] || fail "cannot read $text"; done
  cd "$(dirname "$0")/.."

  if [ ${#texts[@]} -gt 0 ]; then launch/install_packages.sh run; else launch/install_packages.sh run text; fi
  cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DZERO_TESTS=OFF --log-level=WARNING
  cmake --build build --parallel "$(nproc)" --target zero_prepare zero_train zero_generate

  mkdir -p data
  if [ ${#texts[@]} -eq 0 ]; then
    dictionary_text >data/gcide.txt
    texts=(data/gcide.txt)
  fi
  build/bin/zero_prepare --out data/tokens --validation "$(validation_part "${texts[@]}")" "${texts[@]}"
  write_configuration data/quickstart.json "$ranks" "$steps"

  [ "$fresh" = no ] || rm -rf data/checkpoints
  [ ! -d data/checkpoints ] || echo "quickstart: goes on from data/checkpoints; --fresh begins anew"

  # More ranks than cores, and no rank bound to a core: waiting ranks sleep, so sharing costs little. mpirun passes
  # Ctrl-C on as SIGTERM, and kills the ranks 3 s later: time to save.
  local command=(mpirun -np "$ranks" --oversubscribe --bind-to none --mca odls_base_sigkill_timeout 3)
  [ "$(id -u)" -ne 0 ] || command+=(--allow-run-as-root)
  command+=(build/bin/zero_train --config data/quickstart.json)
  echo "${command[*]}"
  "${command[@]}"  # set -e: its status is the script's if it fails or is interrupted

  command=(build/bin/zero_generate --model data/checkpoints --prompt "The " --max-tokens 100
    --temperature 0.8 --seed 1)
  printf '%q ' "${command[@]}" && echo
  "${command[@]}"
}

main "$@"
