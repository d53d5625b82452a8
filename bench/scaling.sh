#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# A table of how training scales, in markdown: ranks 1 to 8, stages 0 to 3, on this host and, as root, on two namespaces
# that stand for hosts.
#
#   bench/scaling.sh [--model NAME] [--sequence T] [--ranks LIST] [--stages LIST] [--rounds N] [--rate RATE]
#                    [--set KEY=VALUE] [--program FILE]
#
#   --model NAME      gpt2-124m
#   --sequence T      tokens of a sequence (256)
#   --ranks LIST      1,2,4,8
#   --stages LIST     0,1,2,3
#   --rounds N        turns of each setting with one process (2)
#   --rate RATE       of the link between the two hosts, as tc has it (1gbit); none: this host alone
#   --set KEY=VALUE   of zero_train's configuration
#   --program FILE    build/bin/zero_bench
#
# Strong: 8 sequences a step, whatever the ranks. Weak: one sequence a rank. Each figure is tokens per second over those of
# one process with all cores and the same batch: the median share of the turns just before and after, in the same job. 1.00
# means that sharding costs nothing. Ranks compute with one thread each.
set -euo pipefail

fail() { echo "scaling: $1" >&2; exit 1; }

program=$(dirname "$0")/../build/bin/zero_bench
model=gpt2-124m sequence=256 ranks=1,2,4,8 stages=0,1,2,3 rounds=2 rate=1gbit set=
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '5,23s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --model | --sequence | --ranks | --stages | --rounds | --rate | --set | --program)
      [ $# -ge 2 ] || fail "$1 takes a value; see bench/scaling.sh --help"
      declare "${1#--}=$2"
      shift 2
      ;;
    *) fail "unknown option '$1'; see bench/scaling.sh --help" ;;
  esac
done
[ -x "$program" ] || fail "$program is missing; build it: cmake --preset release && cmake --build build"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
job=(mpirun --oversubscribe --bind-to none)
[ "$(id -u)" -ne 0 ] || job+=(--allow-run-as-root)

# Prints "stage ratio" for each row that was measured; what could not be stays out of it. Arguments: start... -- batch
measure() {
  local start=()
  while [ "$1" != -- ]; do start+=("$1"); shift; done
  "${start[@]}" "$program" train --model "$model" --sequence "$sequence" --stages "$stages" --rounds "$rounds" \
    --batch "$2" ${set:+--set "$set"} --json "$scratch/rows.json" >"$scratch/out" 2>"$scratch/errors" ||
    { echo "scaling: ${start[*]}: $(tail -n 1 "$scratch/errors")" >&2; return 0; }
  grep 'left out' "$scratch/out" >&2 || true
  # The file has one field a line, and of each stage more rows than one.
  awk -F': ' '
    /"name"/ { wanted = $2 ~ /turn by turn/; match($2, /stage [0-3]/); stage = substr($2, RSTART + 6, 1) }
    /"ratio"/ && wanted { sub(/,$/, "", $2); print stage, $2 }' "$scratch/rows.json"
}

# One line of the table. Arguments: where, kind, ranks, batch, start...
line() {
  local where=$1 kind=$2 count=$3 batch=$4 stage cells=""
  shift 4
  measure "$@" -- "$batch" >"$scratch/ratios"
  for stage in ${stages//,/ }; do
    cells+=" $(awk -v s="$stage" '$1 == s { printf "%.2f", $2 }' "$scratch/ratios") |"
  done
  echo "| $where | $kind | $count | $batch x $sequence |$cells"
}

header="| where | kind | ranks | batch |" rule="|---|---|---:|---:|"
for stage in ${stages//,/ }; do header+=" stage $stage |" rule+="---:|"; done
echo "$header"
echo "$rule"
for count in ${ranks//,/ }; do
  line "one host" strong "$count" 8 "${job[@]}" -np "$count"
  [ "$count" -eq 8 ] || line "one host" weak "$count" "$count" "${job[@]}" -np "$count"
done
if [ "$rate" != none ]; then
  if [ "$(id -u)" -eq 0 ]; then
    line "two hosts, $rate" strong 2 8 "$(dirname "$0")/two_hosts.sh" "$rate"
    line "two hosts, $rate" weak 2 2 "$(dirname "$0")/two_hosts.sh" "$rate"
  else
    echo "scaling: two hosts need root for network namespaces; left out" >&2
  fi
fi
