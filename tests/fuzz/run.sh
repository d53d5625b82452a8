#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs each fuzz target of tests/fuzz with libFuzzer, from its kept inputs on, as many at a time as there are cores:
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
cmake --build build-fuzz --parallel "$(nproc)" --target fuzz_targets
if [ ${#targets[@]} -eq 0 ]; then
  for program in build-fuzz/bin/fuzz_*; do targets+=("${program##*/fuzz_}"); done
fi

# Prints what came of it; what it found, in one line, stays in build-fuzz/TARGET.crash.
search() {  # target seconds
  local target=$1 seconds=$2 log=build-fuzz/$1.log reproducer
  mkdir -p "build-fuzz/found/$target"
  if "build-fuzz/bin/fuzz_$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=8192 -print_final_stats=1 \
      -artifact_prefix="build-fuzz/$target-" "build-fuzz/found/$target" "tests/fuzz/corpus/$target" >"$log" 2>&1; then
    printf '=== %s: %s s\n%s\n' "$target" "$seconds" "$(grep -E "number_of_executed_units|new_units_added" "$log")"
  else
    printf '=== %s: %s s\n%s\n' "$target" "$seconds" "$(tail -40 "$log")"
    reproducer=$(sed -n 's/.*Test unit written to //p' "$log" | tail -1)
    echo "$target: ${reproducer:-no input; see $log}" >"build-fuzz/$target.crash"
  fi
}
export -f search

rm -f build-fuzz/*.crash
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I '{}' bash -c 'search "$1" "$2"' search '{}' "$seconds"
crashes=$(cat build-fuzz/*.crash 2>/dev/null || true)
[ -n "$crashes" ] || exit 0
sed 's/^/found: /' <<<"$crashes" >&2
exit 1
