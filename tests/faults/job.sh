#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# What table.sh, torture.sh and calm.sh share: a tiny run in a folder that is gone when the script ends. To be sourced,
# with `name` the script's for messages.
fail() { echo "${name-}: $1" >&2; exit 2; }

number() {  # flag, value
  [[ ${2-} =~ ^[0-9]{1,6}$ ]] && [ "$((10#$2))" -gt 0 ] || fail "$1 is '${2-}', expected a whole number from 1"
  echo "$((10#$2))"
}

minutes_of() {  # flag, value
  [[ ${2-} =~ ^[0-9]{1,4}(\.[0-9]{1,3})?$ ]] || fail "$1 is '${2-}', expected a number"
  echo "$2"
}

# Sets `bin` and `work`; the folder, hosts and what `started` names are gone at the end, after a signal too.
started=() spaces=() group=""
begin() {  # folder of programs
  bin=$(cd "$1" 2>/dev/null && pwd) || fail "'$1' is no folder; give that of zero_train and zero_prepare: build/bin"
  [ -x "$bin/zero_train" ] && [ -x "$bin/zero_prepare" ] || fail "$bin lacks zero_train or zero_prepare: build them"
  work=$(mktemp -d) || fail "no temporary folder can be made"
  trap 'end_started; [ ${#spaces[@]} -eq 0 ] || end_hosts; leave_group; rm -rf "$work"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  export ZERO_ALLOW_FAULTS=1
}

# Ends what `started` names: told to, so that launchers end their ranks, and killed ten seconds later.
end_started() {
  local each end=$((SECONDS + 10))
  for each in $(living); do kill -TERM "$each"; done
  while [ "$SECONDS" -lt "$end" ] && living >/dev/null; do sleep 0.1; done
  for each in $(living); do kill -KILL "$each"; done
  [ ${#started[@]} -eq 0 ] || wait "${started[@]}"
  started=()
} 2>/dev/null  # the shell tells there of what was killed

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

free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 12000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
}

# The ranks of one host, children of a shell of their own, which ends with them; told to end, it kills them first. Each
# leaves its status in FOLDER/status.RANK.
run_ranks() {  # folder, first rank, ranks, command...
  local folder=$1 first=$2 i each ended said
  local -A rank_of=()
  [ -z "${group-}" ] || echo 0 >"$group/cgroup.procs"
  exec {said}>&2 2>/dev/null  # the shell would tell there of each rank that was killed
  trap 'kill -KILL "${!rank_of[@]}"; exit 143' TERM
  for ((i = 0; i < $3; ++i)); do
    RANK=$((first + i)) LOCAL_RANK=$i "${@:4}" >"$folder/out.$((first + i))" 2>&"$said" {said}>&- &
    rank_of[$!]=$((first + i))
  done
  exec {said}>&-
  while wait -n -p each; ended=$?; [ -n "${each-}" ]; do echo "$ended" >"$folder/status.${rank_of[$each]}"; done
}

# Sets `group`, the control group of the next job's ranks, which limits their memory; empty: none can be made here.
make_group() {  # limit
  local parent limit
  for parent in /sys/fs/cgroup/memory /sys/fs/cgroup; do  # version 1, version 2
    group=$parent/zero_faults.$$
    [ -e "$parent/cgroup.procs" ] && mkdir "$group" || continue
    limit=$group/memory.limit_in_bytes
    [ -e "$limit" ] || { limit=$group/memory.max && echo +memory >"$parent/cgroup.subtree_control"; }
    echo "$1" >"$limit" && return
    rmdir "$group"
  done
  group=""
} 2>/dev/null  # without the right to make one

leave_group() {
  [ -z "$group" ] || rmdir "$group"
  group=""
}

# Starts `ranks` without a launcher, which would end the others by itself, on this host or in halves on those of
# `spaces`. Sets `started`, a process for each host. Lines of standard error go to $work/said with the time before them.
start_job() {  # folder, arguments of zero_train...
  local folder=$1 hosts=${#spaces[@]} i each command
  local here=$((ranks / (hosts > 0 ? hosts : 1)))
  mkdir -p "$folder"
  rm -f "$folder"/status.*
  : >"$work/said"
  MASTER_PORT=$(free_port)
  export MASTER_PORT MASTER_ADDR=127.0.0.1 WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=$here
  command=("$bin/zero_train" --config "$work/c.json" --set "run.log=$folder/run.log"
    "run.checkpoint.folder=$folder/saved" "${@:2}")
  started=()
  if [ "$hosts" -eq 0 ]; then
    run_ranks "$folder" 0 "$ranks" "${command[@]}" 2> >(with_times) &
    started=($!)
    return
  fi
  MASTER_ADDR=10.77.0.1
  for each in "${spaces[@]}"; do ip -n "$each" link set eth0 up; done
  for ((i = 0; i < hosts; ++i)); do
    become_on $((i + 1)) env group="$group" bash -c "$(declare -f run_ranks)"'; run_ranks "$@"' \
      bash "$folder" $((i * here)) "$here" "${command[@]}" 2> >(with_times) &
    started+=($!)
  done
}

with_times() {
  local line
  while IFS= read -r line; do echo "$EPOCHREALTIME $line"; done >>"$work/said"
}

# Waits for the job for so long at most. Sets `status`, the lowest rank's that is not 0, `out_at`, the time, and `left`,
# how many ranks had to be killed.
end_job() {  # folder, seconds
  local end=$((SECONDS + $2))
  while [ "$SECONDS" -lt "$end" ] && living >/dev/null; do sleep 0.05; done
  out_at=$EPOCHREALTIME left=0
  living >/dev/null && left=$((ranks - $(find "$1" -name 'status.*' | wc -l)))
  end_started
  status=$(find "$1" -name 'status.*' | sort -V | xargs -r cat | grep -vx 0 | head -1)
  status=${status:-0}
}

# The hash of the states at the end of a run that ended well; empty: it did not.
hash_in() {  # log
  grep -o '"state_hash":"[0-9a-f]*"' "$1" 2>/dev/null | tail -1 | cut -d'"' -f4
}
