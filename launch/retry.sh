#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Starts a training job again after a fault, until it ends well, is told to end, says that it never will work (status
# 78), or saves no further step in several restarts (a step counts twice at most: the first save may have been damaged).
#
#   launch/retry.sh [--checkpoints FOLDER] [--wait SECONDS] [--give-up K] -- COMMAND...
#   launch/retry.sh -- mpirun -np 8 build/bin/zero_train --config c.json
#   launch/retry.sh --hosts hostfile --min-ranks 8 -- mpirun --host {hosts} -np {ranks} zero_train --config c.json
#
#   --checkpoints FOLDER  where the job saves; by default run.checkpoint.folder of the zero_train in COMMAND, which
#                         must be absolute if the launcher changes the working directory (-wdir, --chdir)
#   --wait SECONDS        before the first restart (5); doubled with each fault within 10 minutes of a start, to at
#                         most 300
#   --give-up K           after K restarts in a row without a further step (1)
#   --hosts FILE          lines "NAME", "NAME:SLOTS" or "NAME slots=SLOTS". {hosts} in COMMAND is then "a:8,b:8" and
#                         {ranks} the slots of these, as the variables ZERO_HOSTS and ZERO_RANKS are: hosts that AGENT
#                         reaches, but for those that two faults have named, which are left out. Leaving one out is
#                         no restart for --give-up
#   --min-ranks M         with --hosts: start no fewer (1); before that, take back hosts that were left out
#   --back SECONDS        with --hosts: take a host back at the first restart so long after it was left out (1800)
#   --agent COMMAND       with --hosts: ssh -o BatchMode=yes -o ConnectTimeout=5
#
# A restart finds its number and the cause in ZERO_RESTART, which zero_train prints and writes to its log. Signals are
# passed on to COMMAND, SIGHUP as SIGTERM. A job that is told to end (by any of them but SIGUSR1, or with status 143 or
# 130) is not started again. The status is that of the last COMMAND.
set -uo pipefail

checkpoints="" pause=5 patience=1 job="" status=0 asked="" ran=0 restarts=0
host_file="" least=1 back=1800 agent="ssh -o BatchMode=yes -o ConnectTimeout=5"
hosts=() reached=() names="" ranks=0 of_hosts=""  # of --hosts
# By host: ranks; faults that named it; SECONDS when it was left out; whether it was left out before.
declare -A slots=() blamed=() left_out=() excused=()
never=78  # launch/process/exit_status.h
words="" scratch=""  # the last ones of the last job on standard error; a folder

say() { echo "retry: $1" >&2; }
fail() { say "$1"; exit 2; }
usage() { sed -n '5,28s/^# \{0,1\}//p' "$0"; }

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

# Sets `status`, `ran` (seconds) and `words`. Job control gives the job a process group of its own, so that a terminal's
# Ctrl-C reaches it once, through pass_on; what passes its standard error on ignores signals, and ends with it.
run() {  # command...
  local errors began=$SECONDS
  words=$scratch/words.$restarts
  exec {errors}> >(
    trap '' INT TERM HUP USR1 USR2
    tee >(tail -c 65536 >"$words.part" && mv "$words.part" "$words") >&2
  )
  set -m
  "$@" </dev/null 2>&"$errors" {errors}>&- &
  job=$!
  set +m
  exec {errors}>&-
  [ -z "$asked" ] || kill -s "$asked" "$job" 2>/dev/null  # it came before the job had a name
  interrupted=yes
  while [ "$interrupted" = yes ]; do  # a signal that is passed on interrupts the wait
    interrupted=no
    wait "$job"
    status=$?
  done
  job=""
  ran=$((SECONDS - began))
  local tries
  for tries in {1..20}; do  # until the last words are there; a process that was left behind may hold them back
    [ ! -e "$words" ] || break
    sleep 0.1
  done
}

# Sleeps, in parts: a signal ends one of them early.
rest() {  # seconds
  local end=$((SECONDS + $1))
  while [ -z "$asked" ] && [ "$SECONDS" -lt "$end" ]; do
    sleep 0.5 &
    wait $!
  done
}

# The line of the last words that says what went wrong; one that names a host before one that names none.
cause_line() {
  local pattern line
  for pattern in '^zero_train: .*\brank [0-9]+ on host ' \
    '^(mpirun|mpiexec|prterun) noticed that process rank [0-9]+ .* on node ' \
    'Remote daemon: .* on node ' '^ssh: (connect to host|Could not resolve hostname) ' '^zero_train: '; do
    line=$(grep -aE -- "$pattern" "$words" 2>/dev/null | grep -av '^zero_train: warning: ' | tail -n 1)
    [ -z "$line" ] || break
  done
  tr -cd '[:print:]' <<<"${line:0:400}"
}

# The host of FILE that a line names; nothing if it names none of them.
host_in() {  # line
  local name each
  name=$(grep -oE '(on host|on node|to host|resolve hostname) [A-Za-z0-9._-]*[A-Za-z0-9]' <<<"$1" | head -n 1)
  name=${name##* }
  [ -n "$name" ] || return
  for each in "${hosts[@]}"; do
    if [ "${each%%.*}" = "${name%%.*}" ]; then echo "$each"; return; fi
  done
}

read_hosts() {
  local line name rest
  [ -r "$host_file" ] || fail "--hosts: $host_file cannot be read"
  while IFS= read -r line || [ -n "$line" ]; do
    line=${line%%#*}
    read -r name rest <<<"$line"
    [ -n "$name" ] || continue
    [[ "$name $rest" =~ ^[A-Za-z0-9._-]+(:[0-9]{1,4}| slots=[0-9]{1,4})?\ *$ ]] ||
      fail "--hosts: $host_file: found '$line', expected NAME, NAME:SLOTS or NAME slots=SLOTS"
    rest=${rest#slots=}
    [[ $name != *:* ]] || rest=${name#*:}
    name=${name%%:*}
    [ -z "${slots[$name]-}" ] || fail "--hosts: $host_file names $name twice"
    hosts+=("$name")
    slots[$name]=$((10#${rest:-1}))
  done <"$host_file"
  [ ${#hosts[@]} -gt 0 ] || fail "--hosts: $host_file names no host"
}

# Sets `reached` to the hosts that the agent reaches; this one needs none.
reach() {
  local each pid
  local -a pids=()
  rm -rf "$scratch/reached" && mkdir "$scratch/reached"
  for each in "${hosts[@]}"; do
    case $each in
      localhost | "$(uname -n)" | "$(uname -n | cut -d. -f1)") : >"$scratch/reached/$each" ;;
      *)
        # shellcheck disable=SC2086
        timeout 20 $agent "$each" true </dev/null >/dev/null 2>&1 && : >"$scratch/reached/$each" &
        pids+=($!)
        ;;
    esac
  done
  for pid in "${pids[@]}"; do  # a signal ends a wait early
    while kill -0 "$pid" 2>/dev/null; do wait "$pid"; done
  done
  reached=()
  for each in "${hosts[@]}"; do
    [ ! -e "$scratch/reached/$each" ] || reached+=("$each")
  done
}

# Takes back hosts that were left out: all whose time is over, then, if the others are too few, all.
take_back() {
  local each
  for each in "${!left_out[@]}"; do
    [ $((SECONDS - left_out[$each])) -ge "$back" ] || continue
    say "host $each is taken back after $((SECONDS - left_out[$each])) s"
    unset "left_out[$each]"
    blamed[$each]=1
  done
}

count_ranks() {  # sets `names` and `ranks` from what was reached and is not left out
  local each
  names="" ranks=0
  for each in "${reached[@]}"; do
    [ -z "${left_out[$each]-}" ] || continue
    names+=${names:+,}$each:${slots[$each]}
    ranks=$((ranks + slots[$each]))
  done
}

# Sets `names` and `ranks` for the next start, and waits for hosts if they are too few.
choose_hosts() {
  local tries too_few pause_now=$pause
  for tries in {1..12}; do
    take_back
    reach
    count_ranks
    if [ "$ranks" -lt "$least" ] && [ ${#left_out[@]} -gt 0 ]; then
      say "without ${!left_out[*]} there are $ranks ranks, fewer than --min-ranks $least: taken back"
      left_out=()
      count_ranks
    fi
    [ "$ranks" -lt "$least" ] || break
    too_few="the hosts that $agent reaches (${reached[*]-}) have $ranks ranks, expected at least $least (--min-ranks)"
    if [ "$tries" -eq 12 ]; then
      say "$too_few: giving up"
      exit 1
    fi
    say "$too_few: trying again in $pause_now s"
    rest "$pause_now"
    [ -z "$asked" ] || break
    pause_now=$((pause_now * 2 < 300 ? pause_now * 2 : 300))
  done
  export ZERO_HOSTS=$names ZERO_RANKS=$ranks
}

# Counts a fault against the host that its line names. True if that leaves the host out for the first time, so that the
# next start has a chance that this one had not.
blame() {  # line
  local host
  host=$(host_in "$1")
  [ -n "$host" ] && [ -z "${left_out[$host]-}" ] || return 1
  blamed[$host]=$((${blamed[$host]-0} + 1))
  [ "${blamed[$host]}" -ge 2 ] || return 1
  if [ $((ranks - slots[$host])) -lt "$least" ]; then
    say "host $host was named by ${blamed[$host]} faults, but without it there are fewer than $least ranks (--min-ranks)"
    return 1
  fi
  left_out[$host]=$SECONDS
  say "host $host was named by ${blamed[$host]} faults: left out from here on, for $back s"
  [ -z "${excused[$host]-}" ] || return 1
  excused[$host]=yes
}

# Runs the command with the hosts of the moment.
start() {  # command...
  local -a started=("$@")
  if [ -n "$host_file" ]; then
    choose_hosts
    [ -z "$asked" ] || exit $((status > 0 ? status : 143))
    started=("${started[@]//\{hosts\}/$names}")
    started=("${started[@]//\{ranks\}/$ranks}")
  fi
  run "${started[@]}"
}

# Reads the options, and sets `command` to what follows --.
read_options() {  # arguments...
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help) usage; exit 0 ;;
      --checkpoints) checkpoints=${2-}; shift 2 || fail "--checkpoints takes a folder" ;;
      --wait)
        [[ ${2-} =~ ^[0-9]{1,4}$ ]] || fail "--wait takes seconds, found '${2-}'"
        pause=$((10#$2))
        shift 2
        ;;
      --give-up | --min-ranks | --back)
        [[ ${2-} =~ ^[0-9]{1,6}$ ]] || fail "$1 takes a whole number, found '${2-}'"
        [ "$1" = --back ] || [ "$((10#$2))" -gt 0 ] || fail "$1 is 0, expected at least 1"
        case $1 in
          --give-up) patience=$((10#$2)) ;;
          --min-ranks) least=$((10#$2)); of_hosts=$1 ;;
          --back) back=$((10#$2)); of_hosts=$1 ;;
        esac
        shift 2
        ;;
      --hosts) host_file=${2-}; shift 2 || fail "--hosts takes a file" ;;
      --agent) agent=${2-}; of_hosts=$1; shift 2 || fail "--agent takes a command" ;;
      --) shift; break ;;
      *) fail "unknown option '$1'; write -- before the command; see launch/retry.sh --help" ;;
    esac
  done
  command=("$@")
}

main() {
  local -a command
  read_options "$@"
  set -- "${command[@]}"
  [ $# -gt 0 ] || fail "a command is missing behind --; see launch/retry.sh --help"
  [ -z "$of_hosts" ] || [ -n "$host_file" ] || fail "$of_hosts is given without --hosts; add --hosts FILE"
  [ -z "$host_file" ] || read_hosts
  if [ -z "$checkpoints" ]; then
    checkpoints=$(folder_of "$@")
    [ $? -ne 78 ] || exit 78  # zero_train has said why no start would work
    [ -n "$checkpoints" ] ||
      fail "the command has no zero_train that tells a run.checkpoint.folder; give --checkpoints FOLDER"
    [[ $checkpoints == /* ]] || ! moves "$@" ||
      fail "run.checkpoint.folder: found '$checkpoints', expected an absolute path under a launcher that changes the \
working directory; or give --checkpoints FOLDER"
  fi
  scratch=$(mktemp -d) || fail "no folder for temporary files; set TMPDIR to one"
  trap 'rm -rf "$scratch"' EXIT
  trap 'pass_on TERM' TERM HUP
  trap 'pass_on INT' INT
  trap 'pass_on USR1' USR1
  trap 'pass_on USR2' USR2

  local there newest=-1 step further fruitless=0 line wait=$pause
  local -A saves=()
  while :; do
    there=$(committed)
    start "$@"
    if [ "$status" -eq 0 ] || [ "$status" -eq 143 ] || [ "$status" -eq 130 ] || [ -n "$asked" ]; then
      exit "$status"
    fi
    if [ "$status" -eq $never ]; then
      say "status $status: the command line or the configuration never will work; not started again"
      exit "$status"
    fi
    further=no
    for step in $(steps_since "$there"); do
      newest=$step
      saves[$step]=$((${saves[$step]-0} + 1))
      [ "${saves[$step]}" -gt 2 ] || further=yes
    done
    line=$(cause_line)
    if blame "$line" || [ $further = yes ]; then
      fruitless=0
    elif [ $restarts -gt 0 ]; then
      fruitless=$((fruitless + 1))
    fi
    if [ $fruitless -ge "$patience" ]; then
      say "status $status again, and no further step was saved since the last fault ($(so_far "$newest")): giving up"
      exit "$status"
    fi
    restarts=$((restarts + 1))
    export ZERO_RESTART="$restarts: status $status after $ran s${line:+, $line}"
    [ "$ran" -lt 600 ] || wait=$pause
    say "status $status after $ran s; $(so_far "$newest"); starting again in $wait s"
    rest "$wait"
    [ -z "$asked" ] || exit "$status"
    wait=$((wait * 2 < 300 ? wait * 2 : 300))
  done
}

main "$@"
