#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# What table.sh and torture.sh share: a tiny run in a folder that is gone when the script ends. To be sourced, with
# `name` the script's for messages.
fail() { echo "${name-}: $1" >&2; exit 2; }

# Sets `bin` and `work`; the folder and what `started` names are gone at the end, after a signal too.
started=()
begin() {  # folder of programs
  bin=$(cd "$1" 2>/dev/null && pwd) || fail "'$1' is no folder; give that of zero_train and zero_prepare: build/bin"
  [ -x "$bin/zero_train" ] && [ -x "$bin/zero_prepare" ] || fail "$bin lacks zero_train or zero_prepare: build them"
  work=$(mktemp -d) || fail "no temporary folder can be made"
  trap 'end_started; rm -rf "$work"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  export ZERO_ALLOW_FAULTS=1
}

# Ends what `started` names: told to, so that launchers end their ranks, and killed ten seconds later.
end_started() {
  local each end=$((SECONDS + 10))
  for each in $(living); do kill -TERM "$each" 2>/dev/null; done
  while [ "$SECONDS" -lt "$end" ] && living >/dev/null; do sleep 0.1; done
  for each in $(living); do kill -KILL "$each" 2>/dev/null; done
  wait 2>/dev/null
  started=()
}

# Those of `started` that have not ended: children of this script, whose numbers are theirs until they are waited for.
# The status says whether there is one.
living() {
  local each state found=1
  for each in "${started[@]}"; do
    state=$(sed 's/.*) //' "/proc/$each/stat" 2>/dev/null | cut -d' ' -f1,2)
    [ "${state#* }" = $$ ] && [ "${state% *}" != Z ] && { echo "$each"; found=0; }
  done
  return "$found"
}

# A model that takes milliseconds a step: two blocks, 8 sequences and more a step.
write_run() {  # name, width
  local text="$work/text.txt" i
  for ((i = 0; i < 3000; ++i)); do echo "line $i of a text whose sense is $((i * i % 977)) and no more"; done >"$text"
  "$bin/zero_prepare" --out "$work/tokens" --validation 0.1 --tokenizer bytes "$text" >"$work/prepared" 2>&1 ||
    { cat "$work/prepared" >&2; fail "zero_prepare failed"; }
  cat >"$work/$1" <<JSON
{"model": {"family": "gpt2", "layers": 2, "width": $2, "heads": 2, "context": 32, "vocabulary": 256},
 "data": {"train": "$work/tokens/train_000000.bin", "validation": "$work/tokens/validation.bin", "sequence_length": 16},
 "run": {"seed": 7, "threads": 1, "device": "cpu", "validation_sequences": 16},
 "train_batch_size": 16, "train_micro_batch_size_per_gpu": 1,
 "zero_optimization": {"stage": 3},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
JSON
}

# The hash of the states at the end of a run that ended well; empty: it did not.
hash_in() {  # log
  grep -o '"state_hash":"[0-9a-f]*"' "$1" 2>/dev/null | tail -1 | cut -d'"' -f4
}
