#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Trains under launch/retry.sh while a drawn rank fails in a drawn way every 15 s, and compares the end with that of a
# run without faults.
#
#   tests/faults/torture.sh [--minutes M] [--seed N] [--ranks N] [--every SECONDS] [--no-goodput] FOLDER
#   tests/faults/torture.sh --minutes 60 build/bin
#
#   FOLDER       of zero_train and zero_prepare
#   --minutes M  of training without faults that the run is made of, about (10), 0.5 too; the reference takes as long
#   --seed N     of the faults (1)
#   --ranks N    ranks of mpirun on this host (8)
#   --every S    seconds between two faults (15)
#   --no-goodput its figure is printed and no part of the verdict: for hosts that have other work
#
# A checkpoint is due every 5 s. Status 0: the run ended, with the reference's state hash, and its goodput, the time of
# the reference's steps over the time that it took, was 70 % or more. Bits that flip unseen are not drawn.
set -uo pipefail
name=torture.sh
. "$(dirname "$0")/job.sh"
root=$(cd "$(dirname "$0")/../.." && pwd)

minutes=10 seed=1 ranks=8 every=15 least=70
kinds='["kill", "stop", "segv", "throw", "loop", "skip", "resize", "slow", "slow_link", "cut", "disk_full"]'

while [ $# -gt 1 ]; do
  case $1 in
    --no-goodput) least=0; shift; continue ;;
    --minutes) minutes=$(minutes_of "$1" "$2") || exit 2 ;;
    --seed) seed=$(number "$1" "$2") || exit 2 ;;
    --ranks) ranks=$(number "$1" "$2") || exit 2 ;;
    --every) every=$(number "$1" "$2") || exit 2 ;;
    *) fail "unknown option '$1'; see the head of this script" ;;
  esac
  shift 2
done
[ $# -eq 1 ] && [[ $1 != --* ]] || fail "give one folder of programs: tests/faults/torture.sh build/bin"
command -v mpirun >/dev/null || fail "mpirun is missing; install openmpi-bin"
begin "$1"

# Open MPI's of a container's root, and of more ranks than cores.
mpirun=(mpirun -np "$ranks" --bind-to none)
[[ $(mpirun --version) =~ Open\ MPI|OpenRTE ]] && mpirun+=(--oversubscribe)
[ "$(id -u)" -ne 0 ] || mpirun+=(--allow-run-as-root)

before=()  # of mpirun
train() {  # folder, arguments...
  local folder=$1
  shift
  mkdir -p "$folder"
  "${before[@]}" "${mpirun[@]}" "$bin/zero_train" --config "$work/c.json" --set "run.log=$folder/run.log" \
    "run.checkpoint.folder=$folder/saved" "$@" >"$folder/out" 2>"$folder/said" &
  started=($!)
  wait "${started[0]}"
}  # the status of the job

step_seconds() { grep -o '"step_seconds":[0-9.e-]*' "$1" | cut -d: -f2; }  # log

# Their median.
usual_step() { step_seconds "$1" | sort -g | awk '{ t[NR] = $1 } END { print t[int((NR + 1) / 2)] }'; }  # log

write_run c.json 64
sed -i 's/"seed": 7,/"seed": 7, "checkpoint": {"every_minutes": 0.0833333, "keep_last": 3},/' "$work/c.json"
train "$work/short" run.steps=200 || { cat "$work/short/said" >&2; fail "a short run failed"; }
steps=$(awk -v s="$(usual_step "$work/short/run.log")" -v m="$minutes" 'BEGIN { printf "%d", 60 * m / s + 1 }')
echo "reference: $steps steps, about $minutes min"
begun=$EPOCHREALTIME
train "$work/reference" "run.steps=$steps" || { cat "$work/reference/said" >&2; fail "the reference failed"; }
alone=$(awk -v a="$EPOCHREALTIME" -v b="$begun" 'BEGIN { printf "%.1f", a - b }')
reference=$(hash_in "$work/reference/run.log")

echo "the same, with a fault every $every s (seed $seed)"
begun=$EPOCHREALTIME
before=("$root/launch/retry.sh" --checkpoints "$work/tortured/saved" --wait 0 --)
train "$work/tortured" "run.steps=$steps" "run.collective_warning=5" "run.collective_timeout=30" \
  "run.faults={\"seed\": $seed, \"every\": $every, \"kinds\": $kinds}"
status=$?
took=$(awk -v a="$EPOCHREALTIME" -v b="$begun" 'BEGIN { printf "%.1f", a - b }')
end_started
hash=$(hash_in "$work/tortured/run.log")
faults=$(find "$work/tortured/saved.faults" -name 'drawn_*' | wc -l)
restarts=$(grep -c '^retry: .*starting again' "$work/tortured/said")
goodput=$(step_seconds "$work/reference/run.log" | awk -v t="$took" '{ all += $1 } END { printf "%.1f", 100 * all / t }')

cat "$work"/tortured/saved.faults/drawn_* | sed -E 's/run.faults: rank [0-9]+: ([a-z_]+).*/\1/' | sort |
  uniq -c | awk '{ printf "  %s x %s\n", $1, $2 }'
echo "$faults faults, $restarts restarts; status $status; $took s beside $alone s without faults; goodput $goodput %"
echo "state hash $hash, without faults $reference"
verdict=0
[ "$status" -eq 0 ] || { echo "WRONG: it did not end well; its last words:"; tail -20 "$work/tortured/said"; verdict=1; }
[ -n "$hash" ] && [ "$hash" = "$reference" ] || { echo "WRONG: other states"; verdict=1; }
awk -v g="$goodput" -v least="$least" 'BEGIN { exit !(g >= least) }' || { echo "WRONG: goodput below $least %"; verdict=1; }
[ "$faults" -gt 0 ] || { echo "WRONG: no fault acted"; verdict=1; }
[ "$verdict" -ne 0 ] || echo right
exit "$verdict"
