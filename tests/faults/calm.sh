#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Trains on a host that is too busy, and stops the whole job for 2 s now and then: nothing of that is a fault, so nobody
# may tell of one.
#
#   tests/faults/calm.sh [--minutes M] [--ranks N] [--every SECONDS] FOLDER
#   tests/faults/calm.sh build/bin
#
#   FOLDER       of zero_train and zero_prepare
#   --minutes M  of training (30), 0.5 too
#   --ranks N    ranks on this host (16)
#   --every S    seconds between two stops of all ranks by SIGSTOP (20)
#
# Beside the ranks, each core has a compiler and a loop. Status 0: the ranks went on to the end without a word on standard
# error, and ten steps later their states are those of a run in peace.
set -uo pipefail
name=calm.sh
. "$(dirname "$0")/job.sh"

minutes=30 ranks=16 every=20 pause=2
while [ $# -gt 1 ]; do
  case $1 in
    --minutes) minutes=$(minutes_of "$1" "$2") || exit 2 ;;
    --ranks) ranks=$(number "$1" "$2") || exit 2 ;;
    --every) every=$(number "$1" "$2") || exit 2 ;;
    *) fail "unknown option '$1'; see the head of this script" ;;
  esac
  shift 2
done
[ $# -eq 1 ] && [[ $1 != --* ]] || fail "give one folder of programs: tests/faults/calm.sh build/bin"
begin "$1"
seconds=$(awk -v m="$minutes" 'BEGIN { printf "%d", 60 * m + 0.999 }')
last=$((seconds + 600))  # for the start, and the end

# Work for every core until there is no file `busy`.
be_busy() {
  local i
  : >"$work/busy"
  printf '#include <%s>\n' algorithm functional map regex string vector >"$work/busy.cpp"
  for ((i = $(nproc); i > 0; --i)); do
    while [ -e "$work/busy" ]; do :; done &
    while [ -e "$work/busy" ]; do "${CXX:-c++}" -std=c++17 -O2 -S -o /dev/null "$work/busy.cpp" || exit; done &
  done
}

# Stops all ranks, and lets them go on. Counts the times that all were there.
stop_all() {
  local each
  each=$(cat "/proc/${started[0]}/task/${started[0]}/children")
  [ "$(wc -w <<<"$each")" -lt "$ranks" ] || stops=$((stops + 1))
  kill -STOP $each
  sleep "$pause"
  kill -CONT $each
} 2>/dev/null  # of ranks that have ended

write_run c.json 32
sed -i "s/\"train_batch_size\": 16,/\"train_batch_size\": $((2 * ranks)),/" "$work/c.json"
command -v "${CXX:-c++}" >/dev/null || fail "${CXX:-c++} is missing; install g++, or set CXX"
be_busy
echo "$ranks ranks on $(nproc) cores, a compiler and a loop beside them on each, for $minutes min"
stops=0 begun=$SECONDS
start_job "$work/disturbed" run.steps=100000000 "run.stop_after=$(awk -v s="$seconds" 'BEGIN { print s / 60 }')"
while living >/dev/null && [ $((SECONDS - begun)) -lt "$last" ]; do
  for ((i = 0; i < every * 5; ++i)); do
    living >/dev/null || break 2
    sleep 0.2
  done
  stop_all
done
end_job "$work/disturbed" "$last"
rm "$work/busy"
cp "$work/said" "$work/words"
took=$((SECONDS - begun)) words=$(wc -l <"$work/words") end=$status killed=$left
steps=$(grep -c '"step_seconds"' "$work/disturbed/run.log")
longest=$(grep -o '"step_seconds":[0-9.e-]*' "$work/disturbed/run.log" | cut -d: -f2 | sort -g | tail -1)

for each in disturbed peace; do
  start_job "$work/$each" "run.steps=$((steps + 10))"
  end_job "$work/$each" "$last"
  [ "$status" -eq 0 ] || { cut -d' ' -f2- "$work/said" >&2; echo "WRONG: behind it, $each ended with $status"; }
done
hash=$(hash_in "$work/disturbed/run.log") peace=$(hash_in "$work/peace/run.log")
echo "$steps steps in $took s, the longest of ${longest:-none} s; stopped $stops times; status $end; $words words"
echo "state hash $hash, in peace $peace"
verdict=0
[ "$end" -eq 0 ] && [ "$killed" -eq 0 ] || { echo "WRONG: it did not end well"; verdict=1; }
[ "$words" -eq 0 ] || { echo "WRONG: false alarms, or other words:"; cut -d' ' -f2- "$work/words" | head -30; verdict=1; }
[ "$stops" -gt 0 ] || { echo "WRONG: never were all ranks stopped"; verdict=1; }
[ -n "$hash" ] && [ "$hash" = "$peace" ] || { echo "WRONG: other states"; verdict=1; }
[ "$verdict" -ne 0 ] || echo right
exit "$verdict"
