#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs each fuzz target of tests/fuzz with libFuzzer, from its kept inputs on:
#
#   tests/fuzz/run.sh [SECONDS [TARGET...]]     SECONDS: of each target, 60 unless given; TARGET: all unless given
#
# What is found on the way stays in build-fuzz/found/TARGET and is built upon by the next call. An input that a reader does not bear is
# written to build-fuzz/, named at the end, and makes the exit status 1: mend the reader, and keep the input in tests/fuzz/corpus/TARGET.
set -euo pipefail
case ${1-} in -h | --help) sed -n '5,10s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/../.."

seconds=${1:-60}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "run.sh: SECONDS is '$seconds', expected a whole number from 1" >&2; exit 2; }
shift $(($# > 0 ? 1 : 0))
targets=("$@")

cmake --preset fuzz --log-level=WARNING
cmake --build build-fuzz --parallel "$(nproc)"
if [ ${#targets[@]} -eq 0 ]; then
  for program in build-fuzz/bin/fuzz_*; do targets+=("${program##*/fuzz_}"); done
fi

crashes=()
for target in "${targets[@]}"; do
  mkdir -p "build-fuzz/found/$target"
  log=build-fuzz/$target.log
  echo "=== $target: $seconds s"
  if "build-fuzz/bin/fuzz_$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=8192 -print_final_stats=1 \
      -artifact_prefix="build-fuzz/$target-" "build-fuzz/found/$target" "tests/fuzz/corpus/$target" >"$log" 2>&1; then
    grep -E "number_of_executed_units|new_units_added" "$log"
  else
    tail -40 "$log"
    reproducer=$(sed -n 's/.*Test unit written to //p' "$log" | tail -1)
    crashes+=("$target: ${reproducer:-no input; see $log}")
  fi
done
[ ${#crashes[@]} -eq 0 ] && exit 0
printf 'found: %s\n' "${crashes[@]}" >&2
exit 1
