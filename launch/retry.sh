#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Starts a training job again after a fault, until it ends well, is told to end, or saves no further step between
# two faults (a step counts twice at most: the first save may have been damaged).
#
#   launch/retry.sh [--checkpoints FOLDER] [--wait SECONDS] -- COMMAND...
#   launch/retry.sh -- mpirun -np 8 build/bin/zero_train --config c.json
#
#   --checkpoints FOLDER  where the job saves; by default run.checkpoint.folder of the zero_train in COMMAND, which
#                         must be absolute if the launcher changes the working directory (-wdir, --chdir)
#   --wait SECONDS        before the first restart (5); doubled with each fault within 10 minutes of a start, to at
#                         most 300
#
# Signals are passed on to COMMAND, SIGHUP as SIGTERM. A job that is told to end (by any of them but SIGUSR1, or with
# status 143 or 130) is not started again. The status is that of the last COMMAND.
set -uo pipefail

checkpoints="" pause=5 job="" status=0 asked=""

say() { echo "retry: $1" >&2; }
fail() { say "$1"; exit 2; }
usage() { sed -n '5,18s/^# \{0,1\}//p' "$0"; }

# The folder that the zero_train in the command is given, with whatever launcher.
folder_of() {  # command...
  while [ $# -gt 0 ] && [ "${1##*/}" != zero_train ]; do shift; done
  [ $# -gt 0 ] || return 1
  "$@" --print-value run.checkpoint.folder </dev/null
}

# Whether the launcher changes the working directory.
moves() {  # command...
  local each
  for each; do
    case $each in
      -wd | -wdir | --wd | --wdir | --chdir | -wdir=* | --wdir=* | --chdir=*) return 0 ;;
      zero_train | */zero_train) return 1 ;;
    esac
  done
  return 1
}

# The committed checkpoints, each with the time of its commit.
committed() { stat -c '%y %n' -- "$checkpoints"/step_*/COMMIT 2>/dev/null | LC_ALL=C sort; }

# The steps that were committed since `committed` said $1, the last one last: neither a
# damaged checkpoint nor one of another run, which lie there from before, tells how far the job is.
steps_since() {  # committed
  LC_ALL=C comm -13 <(echo "$1") <(committed) | sed -nE 's|.*/step_0*([0-9]+)/COMMIT$|\1|p'
}

so_far() {  # step, -1: none
  [ "$1" -ge 0 ] && echo "saved up to step $1" || echo "nothing saved yet"
}

pass_on() {  # signal
  interrupted=yes
  if [ "$1" != USR1 ]; then
    asked=$1
  elif [ -z "$job" ]; then
    say "SIGUSR1: no job runs, and nothing is to be saved; the next start goes on from the newest checkpoint"
  fi
  [ -z "$job" ] || kill -s "$1" "$job" 2>/dev/null
}

# Sets `status`. Job control gives the job a process group of its own, so that a terminal's Ctrl-C reaches it once,
# through pass_on.
run() {  # command...
  set -m
  "$@" </dev/null &
  job=$!
  set +m
  [ -z "$asked" ] || kill -s "$asked" "$job" 2>/dev/null  # it came before the job had a name
  interrupted=yes
  while [ "$interrupted" = yes ]; do  # a signal that is passed on interrupts the wait
    interrupted=no
    wait "$job"
    status=$?
  done
  job=""
}

# Sleeps, in parts: a signal ends one of them early.
rest() {  # seconds
  local end=$((SECONDS + $1))
  while [ -z "$asked" ] && [ "$SECONDS" -lt "$end" ]; do
    sleep 0.5 &
    wait $!
  done
}

main() {
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help) usage; exit 0 ;;
      --checkpoints) checkpoints=${2-}; shift 2 || fail "--checkpoints takes a folder" ;;
      --wait)
        [[ ${2-} =~ ^[0-9]{1,4}$ ]] || fail "--wait takes seconds, found '${2-}'"
        pause=$((10#$2))
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
    [[ $checkpoints == /* ]] || ! moves "$@" ||
      fail "run.checkpoint.folder: found '$checkpoints', expected an absolute path under a launcher that changes the \
working directory; or give --checkpoints FOLDER"
  fi
  trap 'pass_on TERM' TERM HUP
  trap 'pass_on INT' INT
  trap 'pass_on USR1' USR1
  trap 'pass_on USR2' USR2

  local there first=yes newest=-1 step further began wait=$pause
  local -A saves=()
  while :; do
    began=$SECONDS
    there=$(committed)
    run "$@"
    if [ "$status" -eq 0 ] || [ "$status" -eq 143 ] || [ "$status" -eq 130 ] || [ -n "$asked" ]; then
      exit "$status"
    fi
    further=no
    for step in $(steps_since "$there"); do
      newest=$step
      saves[$step]=$((${saves[$step]-0} + 1))
      [ "${saves[$step]}" -gt 2 ] || further=yes
    done
    if [ $first$further = nono ]; then
      say "status $status again, and no further step was saved since the last fault ($(so_far "$newest")): giving up"
      exit "$status"
    fi
    first=no
    [ $((SECONDS - began)) -lt 600 ] || wait=$pause
    say "status $status after $((SECONDS - began)) s; $(so_far "$newest"); starting again in $wait s"
    rest "$wait"
    [ -z "$asked" ] || exit "$status"
    wait=$((wait * 2 < 300 ? wait * 2 : 300))
  done
}

main "$@"
