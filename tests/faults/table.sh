#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Prints what a job of 8 ranks on this host says of each kind of fault in each phase, and whether that is right.
#
#   tests/faults/table.sh [--quick | --only KIND[:PHASE]] [--ranks N] FOLDER
#   tests/faults/table.sh build/bin
#
#   FOLDER     of zero_train and zero_prepare
#   --quick    six rows, in a minute or two; all rows take about half an hour
#   --only     the rows of a kind, or one row: stop:reduce
#   --ranks N  ranks (8); number 3 fails
#
# A row: kind and phase; the rank that the job blames and the seconds from the fault to its first word; whether it names
# the place (unit, collective or phase); the seconds from the fault until no rank was left; what a second start of the
# job comes to, which must go on to the states of a run without faults; and the verdict. The ranks are started without a
# launcher, which would end the others by itself. Status 0: every row is right; "silent" counts as right, for a bit that
# flips: nothing looks at values unless it is asked to.
set -uo pipefail
name=table.sh
. "$(dirname "$0")/job.sh"

ranks=8 victim=3 only="" quick=""
patience=60  # seconds that a row may take, the start too

read_flags() {
  while [ $# -gt 1 ]; do
    case $1 in
      --quick) quick=yes; shift ;;
      --only) only=$2; shift 2 ;;
      --ranks)
        [[ $2 =~ ^[0-9]{1,3}$ ]] && [ "$2" -gt "$victim" ] || fail "--ranks is '$2', expected a number from $((victim + 1))"
        ranks=$2
        shift 2
        ;;
      *) fail "unknown option '$1'; see the head of this script" ;;
    esac
  done
  [ $# -eq 1 ] && [[ $1 != --* ]] || fail "give one folder of programs: tests/faults/table.sh build/bin"
  [ -z "$only" ] || rows | grep "^$only\(:\|$\)" >/dev/null || fail "--only is '$only', which is no kind or KIND:PHASE of a row"
  begin "$1"
}

rows() {
  if [ -n "$quick" ]; then
    printf '%s\n' kill:backward stop:reduce throw:forward loop:backward skip:reduce resize:gather
    return
  fi
  local kind phase
  for kind in kill stop segv throw loop; do
    for phase in start load gather forward backward reduce update save validation end; do echo "$kind:$phase"; done
  done
  for kind in skip resize flip_memory flip_wire; do echo "$kind:gather"; echo "$kind:reduce"; done
  for kind in slow slow_link out_of_memory; do echo "$kind:forward"; done
  for phase in forward reduce save; do echo "cut:$phase"; done
  echo disk_full:save
}

free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 12000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
}

# Runs a job; each line of its standard error goes to $work/said with the time before it. Sets `status`, the first rank's
# that is not 0, and `left`, the ranks that had to be killed.
run_job() {  # folder, arguments...
  local folder=$1 port rank each ended
  shift
  port=$(free_port)
  mkdir -p "$folder"
  status=0 left=0 started=()
  : >"$work/said"
  for ((rank = 0; rank < ranks; ++rank)); do
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$ranks LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
      "$bin/zero_train" --config "$work/c.json" --set "run.log=$folder/run.log" "run.checkpoint.folder=$folder/saved" \
      "$@" >"$folder/out.$rank" 2> >(while IFS= read -r line; do echo "$EPOCHREALTIME $line"; done >>"$work/said") &
    started+=($!)
  done
  local end=$((SECONDS + patience))
  while [ "$SECONDS" -lt "$end" ] && living >/dev/null; do sleep 0.05; done
  out_at=$EPOCHREALTIME
  left=$(living | wc -l)
  for each in $(living); do kill -KILL "$each" 2>/dev/null; done
  for each in "${started[@]}"; do
    wait "$each" 2>/dev/null
    ended=$?
    [ "$status" -ne 0 ] || status=$ended
  done
  started=()
} 2>/dev/null  # the shell would tell there of each rank that was killed

since() {  # time, earlier time
  awk -v a="$1" -v b="$2" 'BEGIN { printf "%.1f", a - b }'
}

# Words that name the place of a fault, as a pattern.
place_of() {  # phase
  case $1 in
    gather) echo 'all_gather\(' ;;
    reduce) echo 'reduce_scatter\(' ;;
    forward | backward) echo "$1 |\"$1\"|all_gather\\(|reduce_scatter\\(" ;;
    *) echo "\"$1\"|$1" ;;
  esac
}

# Sets `blamed`, `first` and `words` from what the job said behind the fault: the first line that names a rank, and not
# the fault itself. A rank in brackets is the one that speaks.
read_words() {
  local line
  blamed="-" first="-" words=""
  line=$(grep -E '\brank [0-9]+' "$work/said" | grep -v 'run\.faults: rank ' | head -1)
  [ -n "$line" ] || return
  first=$(since "${line%% *}" "$fault_at")
  words=$(grep -v 'run\.faults: rank ' "$work/said" | cut -d' ' -f2- | head -40)
  blamed=$(echo "${line#* }" | sed -E 's/\[rank [0-9]+\]//g' | grep -oE '\brank [0-9]+' | head -1 | cut -d' ' -f2)
  [ -n "$blamed" ] || blamed=$(echo "$line" | grep -oE 'rank [0-9]+' | head -1 | cut -d' ' -f2)
}

# What a row must come to: "told" ends the job with words, "harmless" goes on to the same states, "silent" may change
# them.
expected_of() {  # kind
  case $1 in
    slow | slow_link) echo harmless ;;
    cut) echo either ;;
    flip_*) echo silent ;;
    *) echo told ;;
  esac
}

verdict_of() {  # kind
  local expected
  expected=$(expected_of "$1")
  [ "$left" -eq 0 ] || { echo "WRONG: $left ranks left"; return; }
  if [ "$status" -eq 0 ]; then
    [ "$expected" != told ] || { echo "WRONG: not noticed"; return; }
    if [ "$(hash_in "$folder/run.log")" = "$undisturbed" ]; then
      echo right
    elif [ "$expected" = silent ]; then
      echo silent
    else
      echo "WRONG: other states"
    fi
    return
  fi
  [ "$expected" != harmless ] || { echo "WRONG: ended"; return; }
  if [ "$blamed" != "$victim" ]; then
    echo "WRONG rank"
  elif [ "$named" != yes ]; then
    echo "WRONG place"
  elif [ "$next" != good ]; then
    echo "WRONG: next attempt"
  else
    echo right
  fi
}

# The fault as run.faults has it.
fault_json() {  # kind, phase
  local step='"step": 4, ' more=""
  case $2 in start | load | end) step="" ;; esac
  [ "$1" != slow ] || more=', "factor": 10, "seconds": 2'
  [ "$1" != slow_link ] || more=', "delay": 0.05, "seconds": 2'
  echo "[{\"kind\": \"$1\", \"rank\": $victim, ${step}\"phase\": \"$2\"$more}]"
}

row() {  # kind, phase
  local folder="$work/$1.$2" out kind=$1 phase=$2 next=- named=no verdict
  run_job "$folder" "run.faults=$(fault_json "$kind" "$phase")"
  if grep -q 'run\.faults\[0\]: kind "out_of_memory" takes' "$work/said"; then
    printf '%-14s %-11s %s\n' "$kind" "$phase" "skipped: no control group limits memory here"
    return
  fi
  fault_at=$(stat -c %.Y "$folder/saved.faults/fault_0" 2>/dev/null)
  if [ -z "$fault_at" ]; then
    printf '%-14s %-11s %s\n' "$kind" "$phase" "WRONG: the fault did not act"
    head -20 "$work/said" >&2
    wrong=$((wrong + 1))
    return
  fi
  read_words
  out=$(since "$out_at" "$fault_at")
  grep -qE "$(place_of "$phase")" <<<"$words" && named=yes
  local first_status=$status first_left=$left
  cp "$work/said" "$folder/said"
  if [ "$status" -ne 0 ]; then
    run_job "$folder" "run.faults=$(fault_json "$kind" "$phase")"
    next=bad
    [ "$status" -eq 0 ] && [ "$(hash_in "$folder/run.log")" = "$undisturbed" ] && next=good
  fi
  status=$first_status left=$first_left
  verdict=$(verdict_of "$kind")
  printf '%-14s %-11s %6s %7s %6s %7s %6s %5s  %s\n' "$kind" "$phase" "$blamed" "$first" "$named" "$out" \
    "$status" "$next" "$verdict"
  case $verdict in
    WRONG*) wrong=$((wrong + 1)); sed 's/^/    /' "$folder/said" | head -30 >&2 ;;
  esac
  rm -rf "$folder"
}

read_flags "$@"
write_run c.json 32
sed -i 's/"seed": 7,/"seed": 7, "steps": 8, "validation_every": 4, "checkpoint": {"every_steps": 2},/' "$work/c.json"
sed -i 's/"seed": 7,/"seed": 7, "collective_warning": 20, "collective_timeout": 30,/' "$work/c.json"
run_job "$work/undisturbed"
undisturbed=$(hash_in "$work/undisturbed/run.log")
[ "$status" -eq 0 ] && [ -n "$undisturbed" ] || { cat "$work/said" >&2; fail "the run without faults ended with $status"; }
wrong=0
printf '%-14s %-11s %6s %7s %6s %7s %6s %5s  %s\n' kind phase blamed "word/s" place "out/s" status next verdict
while IFS=: read -r kind phase; do
  case $only in "" | "$kind" | "$kind:$phase") row "$kind" "$phase" ;; esac
done < <(rows)
echo "$wrong wrong"
[ "$wrong" -eq 0 ]
