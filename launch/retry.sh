#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Starts a training job again after a fault, until it ends well, is told to end, or saves no further step between
# two faults.
#
#   launch/retry.sh [--checkpoints FOLDER] [--wait SECONDS] -- COMMAND...
#   launch/retry.sh -- mpirun -np 8 build/bin/zero_train --config c.json
#
#   --checkpoints FOLDER  where the job saves; by default run.checkpoint.folder of the zero_train in COMMAND
#   --wait SECONDS        before the first restart (5); doubled with each fault within 10 minutes of a start, to at
#                         most 300
#
# SIGTERM, SIGINT and SIGUSR1 are passed on to COMMAND. A job that SIGTERM or SIGINT has ended (status 143 or 130) is
# not started again. The status is that of the last COMMAND.
set -uo pipefail

checkpoints="" pause=5 job="" status=0 asked=no

say() { echo "retry: $1" >&2; }
fail() { say "$1"; exit 2; }
usage() { sed -n '5,17s/^# \{0,1\}//p' "$0"; }

# The folder that the configuration of the zero_train in the command names.
folder_of() {  # command...
  while [ $# -gt 0 ] && [ "${1##*/}" != zero_train ]; do shift; done
  [ $# -gt 0 ] || return 1
  "$@" --print-config </dev/null | sed -n 's/^run\.checkpoint\.folder *= "\(.*\)" *# .*/\1/p'
}

# The number of the newest committed checkpoint, or none.
newest_step() {
  local commit step newest=-1
  for commit in "$checkpoints"/step_*/COMMIT; do
    step=${commit%/COMMIT}
    step=${step##*/step_}
    [[ $step =~ ^[0-9]{8,18}$ && -f $commit ]] || continue
    [ $((10#$step)) -le "$newest" ] || newest=$((10#$step))
  done
  [ "$newest" -ge 0 ] && echo "$newest" || echo none
}

pass_on() {  # signal
  interrupted=yes
  [ "$1" = USR1 ] || asked=yes
  [ -z "$job" ] || kill -s "$1" "$job" 2>/dev/null
}

# Sets `status`. Job control gives the job a process group of its own, so that a terminal's Ctrl-C reaches it once,
# through pass_on.
run() {  # command...
  set -m
  "$@" </dev/null &
  job=$!
  set +m
  interrupted=yes
  while [ "$interrupted" = yes ]; do  # a signal that is passed on interrupts the wait
    interrupted=no
    wait "$job"
    status=$?
  done
  job=""
}

rest() {  # seconds
  sleep "$1" &
  wait $!
}

main() {
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help) usage; exit 0 ;;
      --checkpoints) checkpoints=${2-}; shift 2 || fail "--checkpoints takes a folder" ;;
      --wait)
        [[ ${2-} =~ ^[0-9]{1,4}$ ]] || fail "--wait takes seconds, found '${2-}'"
        pause=$2
        shift 2
        ;;
      --) shift; break ;;
      *) fail "unknown option '$1'; write -- before the command; see launch/retry.sh --help" ;;
    esac
  done
  [ $# -gt 0 ] || fail "a command is missing behind --; see launch/retry.sh --help"
  if [ -z "$checkpoints" ]; then
    checkpoints=$(folder_of "$@")
    [ -n "$checkpoints" ] ||
      fail "the command has no zero_train that tells a run.checkpoint.folder; give --checkpoints FOLDER"
  fi
  trap 'pass_on TERM' TERM
  trap 'pass_on INT' INT
  trap 'pass_on USR1' USR1

  local before=unknown newest began wait=$pause
  while :; do
    began=$SECONDS
    run "$@"
    if [ "$status" -eq 0 ] || [ "$status" -eq 143 ] || [ "$status" -eq 130 ] || [ "$asked" = yes ]; then
      exit "$status"
    fi
    newest=$(newest_step)
    if [ "$newest" = "$before" ]; then
      say "status $status again, and no step was saved since the last fault (newest: $newest): giving up"
      exit "$status"
    fi
    before=$newest
    [ $((SECONDS - began)) -lt 600 ] || wait=$pause
    say "status $status after $((SECONDS - began)) s; newest saved step: $newest; starting again in $wait s"
    rest "$wait"
    [ "$asked" = no ] || exit "$status"
    wait=$((wait * 2 < 300 ? wait * 2 : 300))
  done
}

main "$@"
