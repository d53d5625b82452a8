#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# The checks that need a GPU: prints what each says, whole, then a table, and ends with 1 where one of
# them failed. One whose tool the host lacks (compute-sanitizer, ncu) is "not made" in the table, and
# counted there. No network. Each check has seconds of its own, so that one that hangs takes no other's.
#
#   tests/gpu.sh [--part N] [BUILD]  checks what BUILD (default: build) holds, on this host: the numbers
#                                    (part 1, under 300 s), whole runs (2, under 400 s), sanitizers, answers
#                                    and NCCL (3, under 400 s), other families (4, under 400 s), or all four
#   tests/gpu.sh --only REGEX [BUILD]  makes the checks whose names match, of all parts: results in only.tar.gz
#   tests/gpu.sh --pack DIR [--arch ARCHITECTURES] [BUILD]
#                                    puts programs, their libraries and the scripts into DIR, for a
#                                    host that has nothing of ours (gpu_pack.sh)
#   DIR/gpu.sh [--part N | --only REGEX]
#                                    checks what was packed: takes a GPU, its driver, python3, and the
#                                    libraries of CUDA, which PyTorch's wheels bring too
#   tests/gpu.sh --self-test         checks this script, without a GPU
#   tests/gpu.sh --small PROGRAM     counts the tests of PROGRAM that compute-sanitizer runs
#
# ZERO_ON_GPU holds what makes zero_train compute on the GPU. Every check's output and run's log, and
# the table, are kept in one archive, part_N.tar.gz in the folder ZERO_GPU_RESULTS (default: gpu_results),
# which is renewed every 20 s.
set -uo pipefail
case ${1-} in -h | --help) sed -n '5,27s/^# \{0,1\}//p' "$0"; exit 0 ;; esac

readonly kSeconds=(0 300 400 400 400)  # the most of a part
renewed=20  # seconds between archives while a check runs
read -ra kOnGpu <<<"${ZERO_ON_GPU:---set run.device=cuda}"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/gpu_host.sh
source "$here/gpu_host.sh"
# shellcheck source=tests/gpu_checks.sh
source "$here/gpu_checks.sh"

# Every check in the order in which they run: part, name, seconds, command. The seconds of a part add up to less than its
# most. What says most comes first; NCCL, which may need the host's network, last.
checks() {
  cat <<'CHECKS'
1 | host, versions, libraries          |  15 | versions_and_libraries
1 | rates beside their limits          |  60 | "$bin/zero_bench" gpu
1 | GPT-2 124M, 32 x 1024, 100 steps   |  35 | whole_steps whole hundred --set run.steps=100
1 | profile of that step               |  20 | a_step_is_profiled whole
1 | gpu_tests                          | 150 | contract_tests "$bin/gpu_tests"
2 | kernels of a block, by ncu         |  60 | kernels_of_a_block
2 | GPT-2 124M, 64 x 1024              |  25 | whole_steps wide wide
2 | Llama of 1.5 B, 8 x 1024           |  50 | whole_steps llama llama
2 | profile of that Llama's step       |  20 | a_step_is_profiled llama
2 | GPT-2 124M, 32 x 1024, graphs on   |  25 | whole_steps whole graphs_true --set run.graphs=true
2 | GPT-2 124M, 32 x 1024, graphs off  |  25 | whole_steps whole graphs_false --set run.graphs=false
2 | graphs change no bit               |   5 | graphs_change_no_bit
2 | recompute, that step               |  35 | recompute_changes_no_bit
2 | fp16 and small moments, that step  |  30 | formats_learn_alike
2 | stage 0, ranks as threads          |  12 | stage_gives_the_same_bits 0
2 | stage 1, ranks as threads          |  12 | stage_gives_the_same_bits 1
2 | stage 2, ranks as threads          |  12 | stage_gives_the_same_bits 2
2 | stage 3, ranks as threads          |  12 | stage_gives_the_same_bits 3
2 | memory as planned                  |  12 | memory_is_planned
2 | resumed from a checkpoint          |  15 | a_resumed_run_is_the_uncut_one
2 | 10 steps of GPT-2: the CPU's losses|  45 | losses_are_the_cpus
3 | models answer, tokens/s            |  45 | models_answer
3 | memcheck of gpu_tests              | 160 | sanitize memcheck "$bin/gpu_tests" 150
3 | racecheck of gpu_tests             | 140 | sanitize racecheck "$bin/gpu_tests" 130
3 | NCCL, two ranks                    |  45 | "$bin/nccl_cuda_ranks" 2
4 | families learn as on the CPU       |  90 | families_learn_as_on_the_cpu
4 | Qwen2.5 of 0.5 B, 16 x 1024        |  45 | whole_steps qwen2 qwen2
4 | Qwen3 of 0.6 B, 16 x 1024          |  45 | whole_steps qwen3 qwen3
4 | Gemma 3 of 270 M, 16 x 1024        |  45 | whole_steps gemma3 gemma3
4 | profile of that Gemma's step       |  20 | a_step_is_profiled gemma3
4 | window of 1024 in 16384 tokens     |  60 | a_window_saves_time
4 | values in host memory and files    |  75 | lower_tiers_change_no_bit
CHECKS
}

# ---- the table ----

only=     # what names match, of --only
running=  # process group of the check that runs
rows=()
failures=0
not_made=0
started=$SECONDS

row() {  # name; ok, FAILED or not made; seconds; what is to be said
  rows+=("$(printf '%-36s %-8s %5s s  %s' "$1" "$2" "$3" "$4")")
  echo "${rows[-1]}"
  case $2 in
    FAILED) failures=$((failures + 1)) ;;
    'not made') not_made=$((not_made + 1)) ;;
  esac
}

print_table() {
  printf '\n%-36s %-8s %7s  %s\n' check result time note
  printf '%s\n' "${rows[@]}"
  echo "$((SECONDS - started)) s in all, $failures of ${#rows[@]} failed, $not_made not made; logs: $archive"
}

# Keeps the table so far and all logs in one archive: where a check ends this script or the host, it is there.
keep_results() {
  print_table >"$results/table.txt"
  tar -C "$(dirname "$results")" -czf "$archive.part" "$(basename "$results")" 2>/dev/null  # of logs that grow, too
  mv "$archive.part" "$archive"
}

# Runs a check and prints what it says, and its row; the last line is its note. A function runs in this shell's
# child: what it sets is lost, but for what it leaves in $work and $results.
check() {  # name, most seconds, command...
  local name=$1 most=$2 begin=$SECONDS log status result=ok
  shift 2
  log=$results/$(printf '%02d_' $((${#rows[@]} + 1)))$(tr -cs 'a-zA-Z0-9\n' _ <<<"$name").log
  set -m  # a process group of its own, which ends with all that it has started
  ( set -o pipefail; "$@" ) >"$log" 2>&1 </dev/null &
  set +m
  running=$!
  wait_for "$running" "$most"
  status=$?
  running=
  case $status in
    0) ;;
    "$kNotMade") result='not made' ;;
    *) result=FAILED ;;
  esac
  [ $status != 124 ] || echo "ended after its $most s" >>"$log"
  echo "---- $name ($result)"
  cat "$log"
  row "$name" "$result" $((SECONDS - begin)) "$(tail -n 1 "$log" | cut -c1-140)"
}

wait_for() {  # process group, seconds
  local group=$1 end=$((SECONDS + $2)) kept=$SECONDS
  while kill -0 "$group" 2>/dev/null; do
    if ((SECONDS >= end)); then
      kill -KILL -- "-$group" 2>/dev/null
      wait "$group" 2>/dev/null
      return 124
    fi
    if ((SECONDS >= kept + renewed)); then
      keep_results
      kept=$SECONDS
    fi
    sleep 0.2
  done
  wait "$group"
}

planned_seconds() { checks | awk -F '|' -v part="$1" '$1 == part {sum += $3} END {print sum + 0}'; }  # part

# The checks of a part, or those of all parts whose names match.
check_part() {  # part, or "only"
  local part name seconds command
  results=$work/${1/#[0-9]/part_$1}
  archive=$folder/$(basename "$results").tar.gz
  rows=() failures=0 not_made=0 started=$SECONDS
  mkdir "$results" || return 1
  while IFS='|' read -r -u 3 part name seconds command; do
    name=$(sed 's/^ *//; s/ *$//' <<<"$name")
    if [ "$1" = only ]; then [[ $name =~ $only ]] || continue; else ((part == $1)) || continue; fi
    eval "check \"\$name\" $((seconds)) $command"
    keep_results
  done 3< <(checks)
  ((${#rows[@]} > 0)) || { echo "gpu.sh: no check has a name that matches '$only'" >&2; return 1; }
  cat "$results/table.txt"
  ((failures == 0))
}

check_all() {  # parts...
  local part status=0
  find_vendor_libraries
  host_is_new_enough >"$work/host" || { echo "gpu.sh: $(tail -n 1 "$work/host")" >&2; exit 1; }
  write_inputs || { echo "gpu.sh: the inputs of the runs cannot be written into $work" >&2; exit 1; }
  for part in "$@"; do check_part "$part" || status=1; done
  return $status
}

# ---- without a GPU ----

self_test() {
  check "passes" 5 echo fine
  check "fails" 5 false
  check "hangs" 1 bash -c 'sleep 31 | sleep 32'
  renewed=0
  # shellcheck disable=SC2016
  check "renewed" 20 bash -c 'until tar -tzf "$0" 2>/dev/null | grep _renewed; do sleep 0.1; done' "$archive"
  renewed=20
  printf '#!/bin/sh\necho "Rows."\n' >"$work/none"
  printf '#!/bin/sh\necho "Rows."\necho "  Add/bf16"\n' >"$work/one"
  chmod +x "$work/none" "$work/one"
  check "no test" 5 small_tests "$work/none"
  check "one test" 5 small_tests "$work/one"
  printf '#!/bin/sh\necho "[  SKIPPED ] the driver is too old"\n' >"$work/skips"
  chmod +x "$work/skips"
  check "skips" 5 contract_tests "$work/skips"
  printf '#!/bin/sh\necho "attention is computed by our own kernels, which are slower: no engine"\n' >"$work/zero_train"
  chmod +x "$work/zero_train"
  bin=$work
  check "own attention" 5 train_with_cudnn whole own.jsonl
  pretend_tools
  pretend_answers
  pretend_packs
  vendor_order
  pretend_host
  check "only two of three" 5 only_what_matches
  keep_results
  tee "$work/table" <"$results/table.txt"
  tar -tzf "$archive" | grep '01_passes' >/dev/null || return 1
  grep -q '^passes .* ok .* fine' "$work/table" && grep -q '^fails .* FAILED' "$work/table" &&
    grep -q '^hangs .* FAILED .* ended after its 1 s' "$work/table" &&
    grep -q '^renewed .* ok ' "$work/table" &&
    grep -q '^answers of three formats .* ok .* bf16: 1502.10 of 12000.00 tokens/s; 9000.50 of 60000.00 tokens/s' "$work/table" &&
    grep -q '^answers of one row .* FAILED' "$work/table" &&
    grep -q '^pack of 64 MiB .* ok .* needs of the host' "$work/table" &&
    grep -q '^pack that is too large .* FAILED .* travels.* 50 MiB, expected less than 48' "$work/table" &&
    grep -q '^no ncu .* not made .* ncu is not on this host' "$work/table" &&
    grep -q '^sanitizer is slow .* not made .* 1 tests passed, without a finding, before the 1 s' "$work/table" &&
    grep -q '^sanitizer is slow, finds .* FAILED .* Invalid' "$work/table" &&
    grep -q '^races of cudnn_generated_kernel .* ok .* 1 tests of our own' "$work/table" &&
    grep -q '^races of void .* FAILED' "$work/table" &&
    grep -q '^no test .* FAILED .* no test of' "$work/table" &&
    grep -q '^one test .* ok .* 1 small tests' "$work/table" &&
    grep -q '^skips .* FAILED .* SKIPPED' "$work/table" &&
    grep -q '^own attention .* FAILED .* attention is our own: no engine' "$work/table" &&
    grep -q '^old glibc .* FAILED .* need glibc 2.34, this host has 2.31; pack on' "$work/table" &&
    grep -q '^old libstdc++ .* FAILED .* the packed one needs glibc 2.36, this host has 2.35' "$work/table" &&
    grep -q '^packed libstdc++ .* ok .* libstdc++ of the pack' "$work/table" &&
    grep -q '^no python3 .* FAILED .* python3 is not on this host' "$work/table" &&
    grep -q '^no GPU .* FAILED .* no GPU: NVIDIA-SMI has failed; these checks' "$work/table" &&
    grep -q '^no inputs .* FAILED .* No space left' "$work/table" &&
    grep -q '^nothing unpacks .* FAILED .*archive.tar.xz .* has neither xz nor python3' "$work/table" &&
    grep -q '^no sanitizer .* not made .* compute-sanitizer is not on this host' "$work/table" &&
    grep -q '^sanitizer refuses .* not made .* Device not supported' "$work/table" &&
    grep -q '^sanitizer finds .* FAILED' "$work/table" &&
    grep -q '^ldconfig .* ok ' "$work/table" &&
    grep -q '^vendors in order .* ok ' "$work/table" &&
    grep -q '^only two of three .* ok .* 2 checks' "$work/table" &&
    grep -q '16 of 30 failed, 4 not made' "$work/table" && grep -q fine "$results"/01_passes*.log || return 1
  local command part
  for part in 1 2 3 4; do
    (($(planned_seconds $part) < kSeconds[part])) && continue
    echo "gpu.sh: the seconds of part $part are $(planned_seconds $part), expected less than ${kSeconds[part]}"
    return 1
  done
  for command in $(checks | awk -F '|' '{print $4}' | grep -oE '^ *[a-z_]+'); do
    declare -F "$command" >/dev/null || { echo "gpu.sh: no check $command"; return 1; }
  done
}

with_path() { PATH=$1; shift; "$@"; }  # folders, command...

# Hosts without what the checks need.
pretend_tools() {
  mkdir -p "$work/empty" "$work/no_gpu" "$work/no_room"
  printf '#!/bin/sh\necho "NVIDIA-SMI has failed"\nexit 9\n' >"$work/no_gpu/nvidia-smi"
  printf '#!/bin/sh\necho "No space left on device"\nexit 1\n' >"$work/no_room/python3"
  chmod +x "$work/no_gpu/nvidia-smi" "$work/no_room/python3"
  check "no python3" 5 with_path "$work/empty" host_can_check
  check "no GPU" 5 with_path "$work/no_gpu:$PATH" host_can_check
  check "no inputs" 5 with_path "$work/no_room:$PATH" write_inputs
  check "nothing unpacks" 5 with_path "$work/empty" unpack "$work/archive.tar.xz" "$work"
  sanitizer() { return 1; }
  check "no sanitizer" 5 sanitize memcheck "$work/one" 4
  printf '#!/bin/sh\necho "========= Error: Device not supported." >&2\nexit 1\n' >"$work/refuses"
  printf '#!/bin/sh\nexit 9\n' >"$work/finds"
  chmod +x "$work/refuses" "$work/finds"
  sanitizer() { echo "$work/refuses"; }
  check "sanitizer refuses" 5 sanitize memcheck "$work/one" 4
  sanitizer() { echo "$work/finds"; }
  check "sanitizer finds" 5 sanitize memcheck "$work/one" 4
  check "no ncu" 5 with_path "$work/empty" kernels_of_a_block
  printf '#!/bin/sh\necho "[       OK ] a"\nexec sleep 30\n' >"$work/slow"
  printf '#!/bin/sh\necho "========= Invalid __global__ read"\nexec sleep 30\n' >"$work/slow_finds"
  chmod +x "$work/slow" "$work/slow_finds"
  sanitizer() { echo "$work/slow"; }
  check "sanitizer is slow" 9 sanitize memcheck "$work/one" 1
  sanitizer() { echo "$work/slow_finds"; }
  check "sanitizer is slow, finds" 9 sanitize memcheck "$work/one" 1
  pretend_races
  check "ldconfig" 5 with_path /usr/bin:/bin cached_libraries
}

# Races that racecheck reports of kernels of cuDNN, and of one of ours.
pretend_races() {
  local kernel
  for kernel in cudnn_generated_kernel 'void zero::cuda::(anonymous namespace)::fold'; do
    printf '#!/bin/sh\necho "[       OK ] a"\necho "[  PASSED  ] 1 test."\necho "%s"\necho "%s"\nexit 9\n' \
      '========= Error: Race reported between Read access at nvjet_kernel+0x1' \
      "=========     and Write access at $kernel+0x2 [4 hazards]" >"$work/races"
    chmod +x "$work/races"
    sanitizer() { echo "$work/races"; }
    check "races of ${kernel%% *}" 5 sanitize racecheck "$work/one" 4
  done
}

# What zero_bench prints of three formats, and of too few rows.
pretend_answers() {
  local format
  for format in bf16 int8 q4; do
    echo "inference    gpt2-124m on a GPU, a token of 1 sequence   1   $format    1502.10    1510.00 tokens/s   12000.00   0.13"
    echo "inference    gpt2-124m on a GPU, a token of each of 16   1   $format    9000.50    9100.00 tokens/s   60000.00   0.15"
  done >"$work/answers"
  head -n 1 "$work/answers" >"$work/answer"
  check "answers of three formats" 5 answer_rates "$work/answers"
  check "answers of one row" 5 answer_rates "$work/answer"
}

# Packs of 64 MiB, of which 15 and 50 travel.
pretend_packs() {
  mkdir -p "$work"/staging/{bin,lib,lib-gcc} "$work/small" "$work/large"
  truncate -s 64M "$work/staging/bin/programs"
  truncate -s 15M "$work/small/programs.tar.xz"
  truncate -s 50M "$work/large/programs.tar.xz"
  printf 'glibc 2.34\nlibstdc++ 3.4.30\n' | tee "$work/small/needs" >"$work/large/needs"
  # shellcheck disable=SC2016
  report_of() { bash -c 'source "$1" && staging=$2 && report "$3" 2>&1' bash "$here/gpu_pack.sh" "$work/staging" "$1"; }
  check "pack of 64 MiB" 5 report_of "$work/small"
  check "pack that is too large" 5 report_of "$work/large"
}

# Two folders with libraries of one vendor: Python's first is the first, whatever its hashes are.
vendor_order() {
  mkdir -p "$work"/{last,first}/nvidia/nccl/lib
  in_order() {
    local packed=$work PYTHONPATH=$work/first:$work/last PYTHONHASHSEED LD_LIBRARY_PATH
    export PYTHONPATH PYTHONHASHSEED
    for PYTHONHASHSEED in 1 2 3 4 5 6 7 8; do
      LD_LIBRARY_PATH=
      find_vendor_libraries
      grep -qE "/first/nvidia/nccl/lib:(.*:)?$work/last/nvidia/nccl/lib" <<<"$LD_LIBRARY_PATH" ||
        { echo "hashes of $PYTHONHASHSEED: $LD_LIBRARY_PATH"; return 1; }
    done
  }
  check "vendors in order" 60 in_order
}

# Checks of two parts, of which --only chooses two, and then none.
only_what_matches() {
  local folder=$work
  checks() { printf '1 | a rate | 5 | true\n1 | a test | 5 | true\n2 | late rates | 5 | true\n'; }
  only=rate
  check_part only >"$work/only.out" || return 1
  rm -r "$work/only"
  only=nothing
  if check_part only 2>"$work/none.out"; then return 1; fi
  grep -F "no check has a name that matches 'nothing'" "$work/none.out" || return 1
  grep -cE '^(a rate|late rates) .* ok' <(sed -n '/^check/,$p' "$work/only.out") | sed 's/$/ checks/'
}

# Hosts of other versions than a pack needs.
pretend_host() {
  here=$work
  packed=$work
  printf 'glibc 2.34\nlibstdc++ 3.4.30\nlib-gcc 2.36\n' >"$work/needs"
  host_glibc() { echo 2.31; }
  version_of_libstdcxx() { echo 3.4.28; }
  check "old glibc" 5 host_is_new_enough
  host_glibc() { echo 2.35; }
  check "old libstdc++" 5 host_is_new_enough
  host_glibc() { echo 2.39; }
  check "packed libstdc++" 5 host_is_new_enough
}

case ${1:-} in
  --small) small_tests "${2:?usage: tests/gpu.sh --small PROGRAM}"; exit ;;
  --pack) shift; exec "$here/gpu_pack.sh" "$@" ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap '[ -z "$running" ] || kill -KILL -- "-$running"; exit 1' INT TERM
if [ "${1:-}" = --self-test ]; then
  results=$work/results
  archive=$work/results.tar.gz
  mkdir "$results"
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
  self_test
  exit
fi
parts=(1 2 3 4)
if [ "${1:-}" = --part ]; then
  [[ ${2:-} =~ ^[1-4]$ ]] || { echo "gpu.sh: --part is '${2:-}'; expected 1, 2, 3 or 4" >&2; exit 1; }
  parts=("$2")
  shift 2
elif [ "${1:-}" = --only ]; then
  only=${2:?usage: tests/gpu.sh --only REGEX}
  parts=(only)
  shift 2
fi
folder=${ZERO_GPU_RESULTS:-gpu_results}
mkdir -p "$folder" || exit 1
folder=$(cd "$folder" && pwd)
bin=${1:-build}/bin
packed=$here
host_can_check >"$work/host" || { echo "gpu.sh: $(tail -n 1 "$work/host")" >&2; exit 1; }
if [ -f "$here/programs.tar.xz" ]; then
  unpack "$here/programs.tar.xz" "$work" >"$work/host" || { echo "gpu.sh: $(tail -n 1 "$work/host")" >&2; exit 1; }
  packed=$work
  bin=$work/bin
fi
[ -x "$bin/zero_train" ] || { echo "gpu.sh: no zero_train in $bin; build it, or give the build's folder" >&2; exit 1; }
check_all "${parts[@]}"
