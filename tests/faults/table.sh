#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Prints what a job of 8 ranks says of each kind of fault in each phase, and whether that is right.
#
#   tests/faults/table.sh [--quick | --only KIND[:PHASE]] [--ranks N] [--hosts 2] [--victim N] FOLDER
#   tests/faults/table.sh build/bin
#   tests/faults/table.sh --hosts 2 build/bin
#
#   FOLDER      of zero_train and zero_prepare
#   --quick     some rows, in a minute or two; all rows take about half an hour
#   --only      the rows of a kind, or one row: stop:reduce
#   --ranks N   ranks (8)
#   --hosts 2   half of the ranks each on two hosts: namespaces of this machine (bench/namespaces.sh). As root
#   --victim N  the rank that fails (3; on two hosts 5, and some rows have the first rank of the second host, 4). A full
#               disk is always rank 0's, which makes the files of a save: others write to files that have their room
#
# A row: kind and phase; the rank that fails, and the one that the job blames; the seconds from the fault to the first
# word of it; whether the words name the place (unit, collective or phase), and the host; the seconds from the fault until
# no rank was left; status; what a second start of the job comes to, which must go on to the states of a run without
# faults; and the verdict. The ranks are started without a launcher, which would end the others by itself. Status 0:
# every row is right; "silent" counts as right, for a bit that flips: nothing looks at values unless it is asked to. How
# long things took is printed, and no part of the verdict.
#
# Kinds that only hosts have act on the victim's host, whose link is down (network_cut); which has lost its power
# (host_lost); of which no process goes on (host_frozen), until the other host's have ended.
set -uo pipefail
name=table.sh
here=$(dirname "$0")
. "$here/job.sh"
. "$here/../../bench/namespaces.sh"

ranks=8 hosts=1 victim="" only="" quick=""
patience=60  # seconds that a row may take, the start too
late_death=2 late_hang=3 late_host=6 late_out=12  # seconds

read_flags() {
  while [ $# -gt 1 ]; do
    case $1 in
      --quick) quick=yes; shift ;;
      --only) only=$2; shift 2 ;;
      --ranks) ranks=$(number "$1" "$2") || exit 2; shift 2 ;;
      --hosts)
        [[ $2 =~ ^[12]$ ]] || fail "--hosts is '$2', expected 1 or 2"
        hosts=$2
        shift 2
        ;;
      --victim)
        [[ $2 =~ ^[0-9]{1,3}$ ]] || fail "--victim is '$2', expected a rank"
        victim=$((10#$2))
        shift 2
        ;;
      *) fail "unknown option '$1'; see the head of this script" ;;
    esac
  done
  [ $# -eq 1 ] && [[ $1 != --* ]] || fail "give one folder of programs: tests/faults/table.sh build/bin"
  [ $((ranks % hosts)) -eq 0 ] || fail "--ranks is '$ranks', expected a number that --hosts $hosts divides"
  per_host=$((ranks / hosts))
  local given=$victim
  victim=${victim:-$((hosts == 1 ? 3 : per_host + 1))}
  [ "$ranks" -gt "$victim" ] || fail "--ranks is '$ranks', expected a number from $((victim + 1)): rank $victim fails"
  first_victim=${given:-$per_host}
  [ -z "$only" ] || rows | grep "^$only\(:\|$\)" >/dev/null || fail "--only is '$only', which is no kind or KIND:PHASE of a row"
  begin "$1"
}

# KIND:PHASE:VICTIM
rows() {
  local kind phase
  if [ -n "$quick" ]; then
    local few=(kill:backward stop:reduce throw:forward loop:backward skip:reduce resize:gather)
    [ "$hosts" -eq 1 ] || few=(kill:backward stop:reduce loop:forward host_lost:backward network_cut:backward)
    printf "%s:$victim\n" "${few[@]}"
    return
  fi
  {
    for kind in kill stop segv throw loop; do
      for phase in start load gather forward backward reduce update save validation end; do echo "$kind:$phase"; done
    done
    for kind in skip resize flip_memory flip_wire; do echo "$kind:gather"; echo "$kind:reduce"; done
    for kind in slow slow_link out_of_memory; do echo "$kind:forward"; done
    for phase in forward reduce save; do echo "cut:$phase"; done
    [ "$hosts" -eq 1 ] || for kind in network_cut host_lost host_frozen; do echo "$kind:backward"; done
  } | sed "s/$/:$victim/"
  echo disk_full:save:0
  [ "$hosts" -eq 1 ] || [ "$first_victim" = "$victim" ] ||
    for kind in kill stop loop; do echo "$kind:backward:$first_victim"; done
}

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

# What was said, without what Open MPI puts between two lines of dashes.
without_banners() {  # file
  awk '/^[0-9.]* -----+$/ { banner = !banner; next } !banner' "$1"
}

# Sets `blamed`, `first`, `named`, `host` and `words` from what the job said behind the fault: the first line that names
# a rank, and not the fault itself; `blamed` from the first that is no warning. A rank in brackets is the one that speaks.
read_words() {  # phase
  local line of_victim whose
  blamed="-" first="-" named=no host=$([ "$hosts" -eq 1 ] && echo - || echo no) words=""
  grep -E '\brank [0-9]+|\bhost host' "$work/said" | grep -v 'run\.faults: rank ' >"$work/naming"
  [ -s "$work/naming" ] || return
  line=$(head -1 "$work/naming")
  first=$(since "${line%% *}" "$fault_at")
  # A warning has all ranks that a rank does not see.
  line=$(grep -m 1 -v ' warning: ' "$work/naming" || echo "$line")
  words=$(without_banners "$work/said" | grep -v 'run\.faults: rank ' | cut -d' ' -f2- | head -40)
  grep -qE "$(place_of "$1")" <<<"$words" && named=yes
  blamed=$(echo "${line#* }" | sed -E 's/\[rank [0-9]+\]//g' | grep -oE '\branks? [0-9]+' | head -1 | cut -d' ' -f2)
  [ -n "$blamed" ] || blamed=$(echo "$line" | grep -oE '\brank [0-9]+' | head -1 | cut -d' ' -f2)
  # Between hosts two calls are known: "[rank 3] X met Y of rank 0", and the faster of the two tells.
  [[ $hosts -eq 1 || ! $line =~ \[rank\ $victim\].*\ met\  ]] || blamed=$victim
  [ "$hosts" -gt 1 ] || return
  whose=$(host_of "$victim")
  [ "$kind" != network_cut ] || whose='host[12]'  # each end may tell of the other
  of_victim=$(grep -oE "\brank $victim on host [A-Za-z0-9._-]+" <<<"$words" | sort -u)
  if [ "$of_victim" = "rank $victim on host $(host_of "$victim")" ] ||
    { is_of_hosts "$kind" && grep -q "\bhost $whose\b" <<<"$words"; }; then
    host=yes
  elif [ -n "$of_victim" ]; then
    host=other
  fi
}

host_of() { echo "host$(($1 / per_host + 1))"; }  # rank

is_of_hosts() { case $1 in network_cut | host_*) return 0 ;; *) return 1 ;; esac }  # kind

# Whether words must name the victim's host, where there are several. A save's failure is all ranks', and of two calls
# that differ either may be wrong.
names_host() {  # kind
  case $1 in kill | stop | segv | throw | loop | out_of_memory) [ "$hosts" -gt 1 ] ;; *) is_of_hosts "$1" ;; esac
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

# Whether the right rank is blamed; of a host any, and where a link is cut each end may tell of the other.
blames_well() {  # kind
  case $1 in
    network_cut) [[ $blamed =~ ^[0-9]+$ ]] ;;
    host_*) [[ $blamed =~ ^[0-9]+$ ]] && [ "$(host_of "$blamed")" = "$(host_of "$victim")" ] ;;
    *) [ "$blamed" = "$victim" ] ;;
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
  if ! blames_well "$1"; then
    echo "WRONG rank"
  elif [ "$named" != yes ] && ! is_of_hosts "$1"; then
    echo "WRONG place"
  elif [ "$host" = other ] || { [ "$host" = no ] && names_host "$1"; }; then
    echo "WRONG host"
  elif [ "$next" != good ]; then
    echo "WRONG: next attempt"
  else
    echo right
  fi
}

# The fault as run.faults has it. Of kinds that only hosts have, one that does no harm and leaves its mark in time.
fault_json() {  # kind, phase
  local kind=$1 step='"step": 4, ' more=""
  case $2 in start | load | end) step="" ;; esac
  [ "$kind" != slow ] || more=', "factor": 10, "seconds": 2'
  [ "$kind" != slow_link ] || more=', "delay": 0.05, "seconds": 2'
  ! is_of_hosts "$kind" || { kind=slow_link; more=', "delay": 0.3, "seconds": 60'; }
  echo "[{\"kind\": \"$kind\", \"rank\": $victim, ${step}\"phase\": \"$2\"$more}]"
}

# Does to the victim's host what its kind says, once the victim has left its mark. Sets `fault_at`.
strike() {  # kind, folder
  local at=$((victim / per_host)) rank frozen
  until [ -e "$2/saved.faults/fault_0" ]; do
    living >/dev/null || return
    sleep 0.02
  done
  fault_at=$EPOCHREALTIME
  case $1 in
    network_cut) ip -n "${spaces[at]}" link set eth0 down ;;
    host_lost)  # the link first: it says no goodbye
      ip -n "${spaces[at]}" link set eth0 down
      kill -KILL "${inits[at]}" && wait "${started[at]}"
      start_host $((at + 1))
      for ((rank = at * per_host; rank < (at + 1) * per_host; ++rank)); do echo 137 >"$2/status.$rank"; done
      ;;
    host_frozen)
      frozen=$(ip netns pids "${spaces[at]}" | grep -vx "${started[at]}")
      kill -STOP $frozen
      while [ "$(living)" != "${started[at]}" ] && [ "${EPOCHREALTIME%.*}" -lt $((${fault_at%.*} + patience)) ]; do sleep 0.05; done
      others_out=$(since "$EPOCHREALTIME" "$fault_at")
      kill -CONT $frozen "${started[at]}"  # nsenter stops with its child, and has to go on after it
      ;;
  esac
} 2>/dev/null  # the shell tells there of what was killed

# Counts a row in the summary: deaths, which the system tells of, hangs in any phase, of which nobody hears, hosts that
# say nothing, and what came too late.
count() {  # kind, seconds to the first word, seconds until all were out
  local class=""
  case $1 in
    kill | segv | out_of_memory | host_lost) class=death ;;
    stop | loop) class=hang ;;
    host_frozen | network_cut) class=host ;;
  esac
  echo "$class $2 $3" >>"$work/times"
}

summary() {
  awk -v death="$late_death" -v hang="$late_hang" -v host="$late_host" -v all="$late_out" '
    function later(x, y) { return x + 0 > y + 0 ? x : y }
    $1 == "death" { ++deaths; d = later($2, d); late += $2 > death || $3 > all; out = later($3, out) }
    $1 == "hang" { ++hangs; h = later($2, h); late += $2 > hang || $3 > all; out = later($3, out) }
    $1 == "host" { ++hosts; o = later($2, o); late += $2 > host || $3 > all; out = later($3, out) }
    END {
      printf "%d deaths, latest word %.1f s; %d hangs, latest %.1f s; ", deaths, d, hangs, h
      if (hosts) printf "%d silent hosts, latest %.1f s; ", hosts, o
      printf "all out within %.1f s; %d later than %d s, %d s, %d s, %d s\n", out, late, death, hang, host, all
    }' "$work/times"
}

row() {  # kind, phase, victim
  local folder="$work/$1.$2.$3" out kind=$1 phase=$2 victim=$3 next=- verdict faults fault_at="" others_out=""
  faults="run.faults=$(fault_json "$kind" "$phase")"
  [ "$kind" != out_of_memory ] || make_group 512M
  start_job "$folder" "$faults"
  ! is_of_hosts "$kind" || strike "$kind" "$folder"
  end_job "$folder" "$patience"
  if grep -q 'run\.faults\[0\]: kind "out_of_memory" takes' "$work/said"; then
    printf '%-14s %-11s %s\n' "$kind" "$phase" "skipped: no control group limits memory here, and none can be made"
    return
  fi
  fault_at=${fault_at:-$(stat -c %.Y "$folder/saved.faults/fault_0" 2>/dev/null)}
  if [ -z "$fault_at" ]; then
    printf '%-14s %-11s %s\n' "$kind" "$phase" "WRONG: the fault did not act"
    head -20 "$work/said" >&2
    wrong=$((wrong + 1))
    return
  fi
  read_words "$phase"
  out=${others_out:-$(since "$out_at" "$fault_at")}
  local first_status=$status first_left=$left
  cp "$work/said" "$folder/said"
  if [ "$status" -ne 0 ]; then
    count "$kind" "$first" "$out"
    start_job "$folder" "$faults"
    end_job "$folder" "$patience"
    next=bad
    [ "$status" -eq 0 ] && [ "$(hash_in "$folder/run.log")" = "$undisturbed" ] && next=good
  fi
  leave_group
  status=$first_status left=$first_left
  verdict=$(verdict_of "$kind")
  # shellcheck disable=SC2059
  printf "$columns" "$kind" "$phase" "$victim" "$blamed" "$first" "$named" "$host" "$out" "$status" "$next" "$verdict"
  case $verdict in
    WRONG*) wrong=$((wrong + 1)); without_banners "$folder/said" | sed 's/^/    /' | head -30 >&2 ;;
  esac
  rm -rf "$folder"
}

read_flags "$@"
if [ "$hosts" -gt 1 ]; then
  make_hosts "$work"
  patience=180  # ranks of CPUs on several hosts form a job of MPI first
  ZERO_JOB_SECRET=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')
  export ZERO_JOB_SECRET
fi
write_run c.json 32
sed -i 's/"seed": 7,/"seed": 7, "steps": 8, "validation_every": 2, "checkpoint": {"every_steps": 2},/' "$work/c.json"
sed -i 's/"seed": 7,/"seed": 7, "collective_warning": 20, "collective_timeout": 30,/' "$work/c.json"
start_job "$work/undisturbed"
end_job "$work/undisturbed" "$patience"
undisturbed=$(hash_in "$work/undisturbed/run.log")
[ "$status" -eq 0 ] && [ -n "$undisturbed" ] || { cat "$work/said" >&2; fail "the run without faults ended with $status"; }
wrong=0 columns='%-14s %-11s %6s %6s %7s %6s %6s %7s %6s %5s  %s\n'
: >"$work/times"
# shellcheck disable=SC2059
printf "$columns" kind phase victim blamed "word/s" place host "out/s" status next verdict
while IFS=: read -r kind phase each; do
  case $only in "" | "$kind" | "$kind:$phase") row "$kind" "$phase" "$each" ;; esac
done < <(rows)
summary
echo "$wrong wrong"
[ "$wrong" -eq 0 ]
