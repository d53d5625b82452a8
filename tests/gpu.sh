#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# The checks that need a GPU: prints a table, and ends with 1 where one of them failed or could not
# be made. Under 8 minutes, no network.
#
#   tests/gpu.sh [BUILD]             checks what BUILD (default: build) holds, on this host
#   tests/gpu.sh --pack DIR [BUILD]  puts programs, their libraries and this script into DIR and
#                                    DIR.tar.xz, for a host that has nothing of ours
#   DIR/gpu.sh                       checks what was packed: takes a GPU, its driver, and the
#                                    libraries of CUDA, which PyTorch's wheels bring too
#   tests/gpu.sh --self-test         checks this script, without a GPU
#   tests/gpu.sh --small PROGRAM     counts the tests of PROGRAM that compute-sanitizer runs
#
# ZERO_ON_GPU holds what makes zero_train compute on the GPU.
set -uo pipefail

readonly kSeconds=${ZERO_GPU_SECONDS:-460}  # for all checks together
readonly kPackedMegabytes=60
read -ra kOnGpu <<<"${ZERO_ON_GPU:---set run.device=cuda}"
# What compute-sanitizer runs, some ten times slower: all but long sequences.
readonly kSmall='-*_t130_*:*_t150_*:*_t300_*:*_t800_*'
readonly kVendors='libcudart|libcublas|libcudnn|libnccl|libnvrtc|libcuda\.'
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# ---- packing ----

# Programs of tests that need a GPU have "cuda" or "gpu" in their names; those of the emulator do not.
gpu_tests() {  # folder of programs
  find "$1" -maxdepth 1 -type f -perm -u+x \( -name '*cuda*' -o -name '*gpu*' \) \
    ! -name '*.sh' ! -name 'cuda_tests' ! -name 'test_without_*' | sort
}

# Libraries of programs, but for the C library's and CUDA's, which must be the host's own.
libraries_of() {  # programs...
  ldd "$@" | awk '$3 ~ /^\// {print $3}' | sort -u |
    grep -vE "/(ld-linux|libc\.|libm\.|libdl\.|libpthread\.|librt\.|($kVendors))" || true
}

pack() {  # folder, build
  local folder=$1 build=$2 program library programs=()
  for program in zero_train zero_bench; do programs+=("$build/bin/$program"); done
  mapfile -t -O 2 programs < <(gpu_tests "$build/bin")
  for program in "${programs[@]}"; do
    [ -x "$program" ] || { echo "gpu.sh: $program is not built" >&2; return 1; }
  done
  rm -rf "$folder" "$folder.tar.xz"
  mkdir -p "$folder/bin" "$folder/lib"
  for program in "${programs[@]}"; do strip -o "$folder/bin/$(basename "$program")" "$program"; done
  libraries_of "${programs[@]}" | while IFS= read -r library; do cp -L "$library" "$folder/lib/"; done
  cp "$here/gpu.sh" "$folder/"
  tar -C "$(dirname "$folder")" -cJf "$folder.tar.xz" "$(basename "$folder")" || return 1
  local megabytes=$(($(stat -c %s "$folder.tar.xz") / 1048576))
  echo "gpu.sh: ${#programs[@]} programs, $(find "$folder/lib" -type f | wc -l) libraries: $folder.tar.xz, $megabytes MiB"
  if ((megabytes >= kPackedMegabytes)); then
    echo "gpu.sh: that is too much; expected less than $kPackedMegabytes MiB" >&2
    return 1
  fi
}

# ---- the table ----

rows=()
failures=0
started=$SECONDS

row() {  # name, ok or FAILED, seconds, what is to be said
  rows+=("$(printf '%-44s %-7s %5s s  %s' "$1" "$2" "$3" "$4")")
  [ "$2" = ok ] || failures=$((failures + 1))
}

print_table() {
  printf '\n%-44s %-7s %7s  %s\n' check result time note
  printf '%s\n' "${rows[@]}"
  echo "$((SECONDS - started)) s in all, $failures of ${#rows[@]} failed"
}

# Runs a check: its last line of output is its note.
check() {  # name, most seconds, command...
  local name=$1 most=$2 begin=$SECONDS left log status result=ok
  shift 2
  left=$((kSeconds - (SECONDS - started)))
  if ((left < 1)); then row "$name" FAILED 0 "no time was left for it"; return; fi
  log=$work/$(tr -c 'a-zA-Z0-9\n' _ <<<"$name").log
  ( set -o pipefail; "$@" ) >"$log" 2>&1 &
  wait_for $! $((most < left ? most : left))
  status=$?
  [ $status = 0 ] || result=FAILED
  row "$name" $result $((SECONDS - begin)) "$(tail -n 1 "$log" | cut -c1-140)"
  [ $status = 0 ] || { echo "---- $name (status $status)"; tail -n 25 "$log"; }
}

wait_for() {  # process, seconds
  local pid=$1 end=$((SECONDS + $2))
  while kill -0 "$pid" 2>/dev/null; do
    if ((SECONDS >= end)); then
      pkill -KILL -P "$pid"
      kill -KILL "$pid" 2>/dev/null
      wait "$pid" 2>/dev/null
      return 124
    fi
    sleep 0.2
  done
  wait "$pid"
}

missing() {  # name, why
  row "$1" FAILED 0 "$2"
}

# ---- the checks ----

find_vendor_libraries() {
  local folder folders
  folders=$(python3 - 2>/dev/null <<'PYTHON'
import glob, site, sys, os
for root in {*site.getsitepackages(), site.getusersitepackages(), *sys.path}:
    for folder in glob.glob(os.path.join(root, "nvidia", "*", "lib")):
        print(folder)
PYTHON
  )
  for folder in $folders /usr/local/cuda/lib64; do
    [ -d "$folder" ] && LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
  done
  if [ -d "$here/lib" ]; then LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}; fi
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
}

libraries_are_there() {
  local absent
  absent=$(ldd "$bin"/* 2>/dev/null | awk '/not found/ {print $1}' | sort -u | tr '\n' ' ')
  echo "${absent:+not found: $absent}"
  [ -z "$absent" ] && echo "all found"
}

write_tokens() {  # file, how many: in the format of token files, with a pattern to learn
  python3 - "$1" "$2" <<'PYTHON'
import struct, sys
count = int(sys.argv[2])
tokens = [(i * i // 7 + i * 31) % 50257 if i % 3 else (i // 3) % 977 for i in range(count)]
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<256i", 20240520, 1, count, *[0] * 253))
    file.write(struct.pack(f"<{count}H", *tokens))
PYTHON
}

write_config() {  # name, model, sequence, micro-batch, batch, bf16
  cat >"$work/$1.json" <<JSON
{"model": $2, "data": {"train": "$work/tokens.bin", "sequence_length": $3},
 "run": {"steps": 10, "seed": 7, "log": "$work/$1.log"},
 "train_batch_size": $5, "train_micro_batch_size_per_gpu": $4, "bf16": {"enabled": $6},
 "zero_optimization": {"stage": 0}, "optimizer": {"type": "AdamW", "params": {"lr": 3e-4}}}
JSON
}


train() {  # config, log, arguments...
  local config=$1 log=$2
  shift 2
  "$bin/zero_train" --config "$work/$config.json" --set run.log="$work/$log" "$@"
}

losses_are_the_cpus() {
  train gpt2 cpu.log --set run.device=cpu || return 1
  train gpt2 gpu.log "${kOnGpu[@]}" || return 1
  python3 - "$work/cpu.log" "$work/gpu.log" <<'PYTHON'
import json, sys
cpu, gpu = ([json.loads(line)["loss"] for line in open(name) if '"loss"' in line] for name in sys.argv[1:])
apart = max(abs(a - b) / abs(a) for a, b in zip(cpu, gpu))
print(f"{len(gpu)} steps, losses {gpu[0]:.4f} to {gpu[-1]:.4f}, at most {apart:.1e} apart")
sys.exit(len(cpu) != len(gpu) or len(gpu) < 10 or apart > 2e-3)
PYTHON
}

stages_are_equal() {
  local stage hash first=
  for stage in 0 1 2 3; do
    train small "stage$stage.log" "${kOnGpu[@]}" --local-ranks 4 --set zero_optimization.stage=$stage || return 1
    hash=$(tail -n 1 "$work/stage$stage.log" | grep -o '"state_hash": *"[0-9a-f]*"')
    [ -n "$hash" ] || { echo "stage $stage: no state hash in its log"; return 1; }
    first=${first:-$hash}
    [ "$hash" = "$first" ] || { echo "stage $stage ends with $hash, stage 0 with $first"; return 1; }
  done
  echo "stages 0 to 3 on 4 ranks: $first"
}

memory_is_planned() {
  train small plan.log "${kOnGpu[@]}" --local-ranks 2 --set zero_optimization.stage=3 | tee "$work/plan.out"
  grep "as planned, to the byte" "$work/plan.out"
}

# Writes what is used of the GPU, in MiB, some times a second, for a minute at most.
watch_memory() {  # file
  local i
  for ((i = 0; i < 300; ++i)); do
    nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | sort -n | tail -n 1
    sleep 0.2
  done >"$1"
}

# Steps of GPT-2 124M whose passes are launched as graphs, beside steps of every kernel by itself.
graphs_change_no_bit() {
  local graphs watcher status
  for graphs in true false; do
    watch_memory "$work/graphs_$graphs.mib" &
    watcher=$!
    train graphs "graphs_$graphs.log" "${kOnGpu[@]}" --set run.graphs=$graphs
    status=$?
    kill $watcher
    [ $status = 0 ] || return 1
  done
  python3 - "$work/graphs_true" "$work/graphs_false" <<'PYTHON'
import json, statistics, sys
def read(name):
    *steps, last = [json.loads(line) for line in open(name + ".log")]
    late = steps[3:]
    most = max((int(line) for line in open(name + ".mib") if line.strip().isdigit()), default=0)
    return last, [step["loss"] for step in steps], (
        f"{statistics.median(step['tokens_per_second'] for step in late):.0f} tokens/s, "
        f"{1e3 * statistics.median(step['submit_seconds'] for step in late):.2f} ms of the host, {most} MiB")
(kept, losses, with_graphs), (other, same, without) = read(sys.argv[1]), read(sys.argv[2])
print(kept["graphs"]["text"])
if kept["state_hash"] != other["state_hash"] or losses != same:
    sys.exit(f"graphs change bits: {kept['state_hash']} and {other['state_hash']}")
if kept["graphs"]["passes"] != 24 or other["graphs"]["passes"] != 0:
    sys.exit(f"expected 24 passes in graphs and none without, found {kept['graphs']} and {other['graphs']}")
print(f"a step {with_graphs}; without {without}")
PYTHON
}

# The operations that take longest in a step of GPT-2 124M.
a_step_is_profiled() {
  train gpt2 profile.log "${kOnGpu[@]}" --set run.steps=4 --profile || return 1
  python3 - "$work/profile.log" >"$work/profile.txt" <<'PYTHON' || return 1
import json, sys
profile = json.loads(open(sys.argv[1]).readlines()[-1])["profile"]
steps, work = profile["steps"], profile["work"]
print(f"{1e3 * profile['seconds'] / steps:.2f} ms a step; products {profile['product_flop_per_second'] * 1e-12:.0f} TFLOP/s, "
      f"copies {profile['memory_bytes_per_second'] * 1e-9:.0f} GB/s")
for entry in work[:15]:
    print(f"{entry['name']:<40} {entry['calls'] / steps:6.0f} calls {1e3 * entry['seconds'] / steps:8.3f} ms "
          f"{100 * entry['seconds'] / profile['seconds']:5.1f} % of the step"
          + (f" {100 * entry['share_of_limit']:6.1f} % of the limit" if entry["share_of_limit"] > 0 else ""))
covered = sum(entry["seconds"] for entry in work)
sys.exit(not 0 < covered <= 1.001 * profile["seconds"])
PYTHON
  head -n 1 "$work/profile.txt"
}

# Tests of a program that kSmall chooses; none is an error.
small_tests() {  # program
  local count
  count=$("$1" --gtest_list_tests --gtest_filter="$kSmall" | grep -c '^  ')
  if ((count == 0)); then
    echo "gpu.sh: no test of $1 matches $kSmall"
    return 1
  fi
  echo "$count small tests"
}

sanitize() {  # sanitizer, tool, program
  small_tests "$3" || return 1
  "$1" --tool "$2" --error-exitcode 9 "$3" --gtest_brief=1 --gtest_filter="$kSmall" || return 1
  small_tests "$3"
}

check_all() {
  local program sanitizer
  find_vendor_libraries
  if ! nvidia-smi -L >"$work/gpus" 2>&1; then
    echo "gpu.sh: no GPU: $(head -n 1 "$work/gpus"); these checks need one" >&2
    exit 1
  fi
  cat "$work/gpus"
  check "libraries" 20 libraries_are_there
  check "version" 20 "$bin/zero_train" --version
  mapfile -t tests < <(gpu_tests "$bin")
  ((${#tests[@]})) || missing "contract tests" "no program with cuda or gpu in its name in $bin"
  for program in "${tests[@]}"; do check "$(basename "$program")" 120 "$program" --gtest_brief=1; done
  write_tokens "$work/tokens.bin" 300000
  write_config gpt2 '"gpt2-124m"' 256 4 4 false
  write_config small '{"family": "gpt2", "layers": 4, "width": 256, "heads": 4, "context": 128, "vocabulary": 50304}' 128 2 16 true
  check "10 steps of GPT-2 124M: the CPU's losses" 150 losses_are_the_cpus
  write_config graphs '"gpt2-124m"' 256 4 8 true
  check "graphs on and off: bits, rates" 90 graphs_change_no_bit
  check "profile of a step of GPT-2 124M" 60 a_step_is_profiled
  check "stages 0 to 3 give the same bits" 60 stages_are_equal
  check "memory as planned" 30 memory_is_planned
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
  for tool in memcheck racecheck; do
    if [ -z "$sanitizer" ]; then missing "compute-sanitizer $tool" "not on this host"; continue; fi
    for program in "${tests[@]}"; do
      case $program in */nccl_*) continue ;; esac  # NCCL's kernels are its own matter
      check "$tool: $(basename "$program")" 90 sanitize "$sanitizer" $tool "$program"
    done
  done
  check "rates beside their limits" 90 "$bin/zero_bench" gpu
  print_table
  cat "$work/profile.txt" 2>/dev/null
  ((failures == 0))
}

self_test() {
  check "passes" 5 echo fine
  check "fails" 5 false
  check "hangs" 1 sleep 30
  missing "absent" "why"
  printf '#!/bin/sh\necho "Rows."\n' >"$work/none"
  printf '#!/bin/sh\necho "Rows."\necho "  Add/bf16"\n' >"$work/one"
  chmod +x "$work/none" "$work/one"
  check "no test" 5 small_tests "$work/none"
  check "one test" 5 small_tests "$work/one"
  print_table | tee "$work/table"
  grep -q '^passes .* ok .* fine' "$work/table" && grep -q '^fails .* FAILED' "$work/table" &&
    grep -q '^hangs .* FAILED' "$work/table" && grep -q '^no test .* FAILED .* no test of' "$work/table" &&
    grep -q '^one test .* ok .* 1 small tests' "$work/table" && grep -q '4 of 6 failed' "$work/table"
}

if [ "${1:-}" = --small ]; then
  small_tests "${2:?usage: tests/gpu.sh --small PROGRAM}"
  exit
fi
if [ "${1:-}" = --pack ]; then
  pack "${2:?usage: tests/gpu.sh --pack DIR [BUILD]}" "${3:-build}"
  exit
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "${1:-}" = --self-test ]; then
  self_test
  exit
fi
bin=$here/bin
[ -d "$bin" ] || bin=${1:-build}/bin
[ -x "$bin/zero_train" ] || { echo "gpu.sh: no zero_train in $bin; build it, or give the build's folder" >&2; exit 1; }
check_all
