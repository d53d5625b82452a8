#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Starts a training job again after a fault, until it ends well, is told to end, says that it will fail again (status
# 78), or saves no further step in several restarts (a step counts twice at most: the first save may have been damaged).
#
#   launch/retry.sh [--checkpoints FOLDER] [--wait SECONDS] [--give-up K] -- COMMAND...
#   launch/retry.sh -- mpirun -np 8 build/bin/zero_train --config c.json
#   launch/retry.sh --hosts hostfile --min-ranks 8 -- mpirun --host {hosts} -np {ranks} zero_train --config c.json
#
#   --checkpoints FOLDER  where the job saves; by default run.checkpoint.folder of the zero_train in COMMAND, which
#                         must be absolute if the launcher changes the working directory (-wdir, --chdir)
#   --wait SECONDS        before the first restart (5); doubled with each fault within 10 minutes of a start, to 300
#   --give-up K           after K restarts in a row without a further step (1)
#   --hosts FILE          lines "NAME", "NAME:SLOTS" or "NAME slots=SLOTS". {hosts} in COMMAND is then "a:8,b:8" and
#                         {ranks} the slots of these, as the variables ZERO_HOSTS and ZERO_RANKS are: hosts that AGENT
#                         reaches, but for those that two faults have named, or two findings of wrong values, which
#                         are left out. Leaving one out is no restart for --give-up, unless by a rank's own error
#   --min-ranks M         with --hosts: start no fewer (1; FILE must have as many); take hosts back before that
#   --back SECONDS        with --hosts: take a host back at the first restart so long after it was left out (1800). One
#                         that two findings of wrong values have named is never taken back
#   --agent COMMAND       with --hosts: ssh -o BatchMode=yes -o ConnectTimeout=5
#
# A restart finds its number, the cause and, behind a tab, the checkpoint folder in ZERO_RESTART, which the zero_train
# of that folder prints and writes to its log. Signals are passed on to COMMAND, SIGHUP as SIGTERM, and to srun, which
# would kill the ranks, as SIGUSR2. A job that is told to end (by any of them but SIGUSR1, or with status 143 or 130) is
# not started again. The status is that of the last COMMAND, 1 if too few hosts came, 2 if no start could work.
set -uo pipefail

checkpoints="" pause=5 patience=1 job="" of_srun="" status=0 asked="" ran=0 restarts=0
host_file="" least=1 back=1800 agent=(ssh -o BatchMode=yes -o ConnectTimeout=5)
hosts=() names="" ranks=0 total=0 of_hosts=""  # of --hosts
# By host: ranks; what named it; findings of wrong values among that; SECONDS when it was left out; if it ever was.
declare -A slots=() blamed=() wrong=() left_out=() excused=()
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

# A program that is not there would be no more there at the second start.
look_for() {  # program[, the option that names it]
  type -P -- "$1" >/dev/null || fail "${2+$2: }no program $1$([ ! -e "$1" ] || echo " that may be executed")"
}

# Whether a word of the command, before its zero_train, is as the pattern says.
has() {  # pattern, command...
  printf '%s\n' "${@:2}" | sed -E '\|^(.*/)?zero_train$|,$d' | grep -xE -- "$1" >/dev/null
}

# The committed checkpoints, each with the time of its commit.
committed() { stat -c '%y %n' -- "$checkpoints"/step_*/COMMIT 2>/dev/null | LC_ALL=C sort; }

# The steps that were committed since `committed` said $1, the last one last: neither a
# damaged checkpoint nor one of another run, which lie there from before, tells how far the job is.
steps_since() {  # committed
  LC_ALL=C comm -13 <(echo "$1") <(committed) | sed -nE 's|.*/step_0*([0-9]+)/COMMIT$|\1|p'
}

so_far() {  # the newest step since the first start, -1: none
  local older
  if [ "$1" -ge 0 ]; then echo "saved up to step $1"; return; fi
  older=$(steps_since "" | tail -n 1)
  [ -z "$older" ] || { echo "no step saved since retry.sh began (newest: step $older)"; return; }
  [ -d "$checkpoints" ] && echo "nothing saved yet" || echo "nothing saved: there is no folder $checkpoints"
}

# An srun that is told to end kills its ranks at once. SIGUSR2, which asks them for the same, it passes on.
pass_on() {  # signal
  interrupted=yes
  if [ "$1" != USR1 ]; then
    [ -z "$of_srun" ] || set -- USR2
    asked=$1
  elif [ -z "$job" ]; then
    say "SIGUSR1: no job runs, and nothing is to be saved; the next start goes on from the newest checkpoint"
  fi
  [ -z "$job" ] || kill -s "$1" "$job" 2>/dev/null
}

# Sets `status`, `ran` (seconds) and `words`. Job control gives the job a process group of its own, so that a terminal's
# Ctrl-C reaches it once, through pass_on; what passes its standard error on ignores signals, and ends with it.
run() {  # command...
  local errors tries=20 began=$SECONDS
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
  until [ -e "$words" ] || [ $((tries--)) -eq 0 ]; do sleep 0.1; done  # a process left behind may hold them back
}

# Sleeps, in parts: a signal ends one of them early.
rest() {  # seconds
  local end=$((SECONDS + $1))
  while [ -z "$asked" ] && [ "$SECONDS" -lt "$end" ]; do sleep 0.5 & wait $!; done
}

# Of values that changed (run.check_collectives, mesh.check_every), of hosts that run.check_compute_every found wrong.
changed_values='had checksum [0-9a-f]+ when they were sent|check_replicas: after step [0-9]+ '
wrong_twice='hosts? [^ ]+(, [^ ]+)* computed wrongly twice'

# The line of the last words that says what went wrong: wrong values first, which others may only follow from, then one
# that names a host before one that names none.
cause_line() {
  local pattern line
  for pattern in "^zero_train: .*($changed_values|$wrong_twice)" \
    '^zero_train: .*\brank [0-9]+ on host ' \
    '^(mpirun|mpiexec|prterun) noticed that process rank [0-9]+ .* on node ' \
    'Remote daemon: .* on node ' '^ssh: (connect to host|Could not resolve hostname) ' '^zero_train: '; do
    line=$(grep -aE -- "$pattern" "$words" 2>/dev/null | grep -av '^zero_train: warning: ' | tail -n 1)
    [ -z "$line" ] || break
  done
  LC_ALL=C sed -E 's/^(.{200}).{5,}(.{200})$/\1 ... \2/' <<<"$line" | tr -cd '[:print:]'  # a host may be at its end
}

# The hosts of FILE among names, one a line: of that name, or else the only one whose first label it has. All of an
# address counts.
listed() {  # "names"
  local name each found address='^[0-9]+(\.[0-9]+){3}$'
  for name in $1; do
    found=()
    for each in "${hosts[@]}"; do
      if [ "$each" = "$name" ]; then found=("$each"); break; fi
      [[ $name =~ $address || $each =~ $address || ${each%%.*} != "${name%%.*}" ]] || found+=("$each")
    done
    [ ${#found[@]} -ne 1 ] || echo "${found[0]}"
  done
}

# The host of FILE that a line names; nothing if it names none of them. An error may quote another host before its own.
host_in() {  # line
  local name
  name=$(grep -oE '\(rank [0-9]+ on host [A-Za-z0-9._-]*[A-Za-z0-9]\)' <<<"$1" | tail -n 1 | tr -d ')')
  [ -n "$name" ] ||
    name=$(grep -oE '(on host|on node|to host|resolve hostname) [A-Za-z0-9._-]*[A-Za-z0-9]' <<<"$1" | head -n 1)
  [ -z "$name" ] || listed "${name##* }"
}

# The hosts of FILE that findings of wrong values in the last words name, one a line; some name two, of which one is
# wrong. A step counts once, as for the sentence that ends a run, which counts for both of its findings: warnings above.
wrong_hosts() {
  local line names step
  names=$(grep -aoE "^zero_train: .*$wrong_twice" "$words" 2>/dev/null | tail -n 1 |
    sed -E 's/^.*hosts? ([^ ]+(, [^ ]+)*) computed wrongly twice$/\1/; s/,//g')
  if [ -n "$names" ]; then listed "$names $names"; return; fi
  {
    grep -aE '^zero_train: warning: step [0-9]+: .* computed or kept (it|them) wrongly' "$words"
    grep -aE "^zero_train: .*($changed_values)" "$words" | tail -n 1
  } 2>/dev/null | while IFS= read -r line; do
    names=$(grep -oE '\(host [^ )]+\)|of rank [0-9]+, [A-Za-z0-9._-]*[A-Za-z0-9]' <<<"$line" |
      sed -E 's/^.* //; s/\)$//' | sort -u)
    step=$(sed -nE 's/^zero_train: warning: step ([0-9]+): .*/\1/p' <<<"$line")
    listed "$names" | sed "s/\$/ $step/"
  done | sort -u | cut -d ' ' -f 1
}

read_hosts() {
  local name rest
  [ -r "$host_file" ] || fail "--hosts: $host_file cannot be read"
  while read -r name rest || [ -n "$name" ]; do
    [[ "$name $rest" =~ ^([A-Za-z0-9._-]+)(:([0-9]{1,4})| slots=([0-9]{1,4}))?\ *$ ]] ||
      fail "--hosts: $host_file: found '$name${rest:+ $rest}', expected NAME, NAME:SLOTS or NAME slots=SLOTS"
    name=${BASH_REMATCH[1]} rest=${BASH_REMATCH[3]}${BASH_REMATCH[4]}
    [ -z "${slots[$name]-}" ] || fail "--hosts: $host_file names $name twice"
    hosts+=("$name")
    slots[$name]=$((10#${rest:-1})) total=$((total + 10#${rest:-1}))
  done < <(sed 's/#.*//; /^[[:space:]]*$/d' "$host_file")
  [ ${#hosts[@]} -gt 0 ] || fail "--hosts: $host_file names no host"
  for name in "${hosts[@]}"; do is_here "$name" || look_for "${agent[0]-}" --agent; done
  [ $total -ge "$least" ] || fail "--hosts: $host_file has $total slots in all, --min-ranks asks for $least"
}

is_here() { local own; own=$(uname -n); [[ $1 == localhost || $1 == "$own" || $1 == "${own%%.*}" ]]; }

# Leaves a mark if the agent reaches the host, or else its last words; this host needs none.
ask() {  # host
  local status=0
  is_here "$1" || timeout 20 "${agent[@]}" "$1" true </dev/null >/dev/null 2>"$scratch/asked/$1" || status=$?
  case $status in
    0) : >"$scratch/reached/$1" ;;
    124) echo "no answer in 20 s" >"$scratch/asked/$1" ;;
    *) grep -qa . "$scratch/asked/$1" || echo "status $status" >"$scratch/asked/$1" ;;
  esac
}

reach() {
  local each pid pids=()
  rm -rf "$scratch/reached" && mkdir -p "$scratch/reached" "$scratch/asked"
  for each in "${hosts[@]}"; do
    ask "$each" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do  # a signal ends a wait early
    while kill -0 "$pid" 2>/dev/null; do wait "$pid"; done
  done
}

# Takes hosts back that were left out so long ago, but for those with wrong values.
take_back() {  # seconds
  local each
  for each in "${!left_out[@]}"; do
    [[ ${wrong[$each]-0} -lt 2 && $((SECONDS - left_out[$each])) -ge $1 ]] || continue
    say "host $each is taken back after $((SECONDS - left_out[$each])) s"
    unset "left_out[$each]"
    blamed[$each]=1
  done
}

# Sets `names` and `ranks` from what was reached and is not left out, and `tally` to what is said of the others.
count_ranks() {
  local each silent="" out=""; names="" ranks=0
  for each in "${hosts[@]}"; do
    if [ ! -e "$scratch/reached/$each" ]; then
      silent+="${silent:+, }$each (\"$(grep -a . "$scratch/asked/$each" | tail -n 1 | head -c 200 | tr -cd ' -~')\")"
    elif [ -n "${left_out[$each]-}" ]; then
      out+=${out:+, }$each
    else
      names+=${names:+,}$each:${slots[$each]} ranks=$((ranks + slots[$each]))
    fi
  done
  tally="${silent:+not reached: $silent; }${out:+left out: $out; }$ranks of $total slots"
}

# Sets `names` and `ranks` for the next start, and waits for hosts if they are too few.
choose_hosts() {
  local tries tally pause_now=$pause
  for tries in {1..12}; do
    take_back "$back"
    reach
    count_ranks
    if [ "$ranks" -lt "$least" ]; then take_back 0; count_ranks; fi
    [ "$ranks" -lt "$least" ] || break
    tally+=", expected at least $least (--min-ranks); try $tries of 12"
    [ "$tries" -lt 12 ] || { say "$tally: giving up"; exit 1; }
    say "$tally, again in $pause_now s"
    rest "$pause_now"
    [ -z "$asked" ] || return
    pause_now=$((pause_now * 2 < 300 ? pause_now * 2 : 300))
  done
  [ "$ranks" -eq "$total" ] || say "$tally: starting with these"
  export ZERO_HOSTS=$names ZERO_RANKS=$ranks
}

# Counts a fault against the host that its line names, and findings of wrong values against theirs. True if that leaves
# a host out for the first time, so that the next start has a chance that this one had not; but not because of an error
# of a rank's own work: a file that all hosts share would take out one after the other.
blame() {  # line
  local host count better=1 own=""
  [[ ! $1 =~ \(rank\ [0-9]+\ on\ host\  || $1 =~ ^zero_train:\ ranks?\ |or\ raise\ run.collective_timeout ]] || own=yes
  for host in $(host_in "$1"); do ! name_again "$host" 1 $own || better=0; done
  while read -r count host; do
    wrong[$host]=$((${wrong[$host]-0} + count))
    ! name_again "$host" "$count" || better=0
  done < <(wrong_hosts | sort | uniq -c)
  return $better
}

# Counts what names a host, and leaves it out at the second time. True if that is the first time, and no own error.
name_again() {  # host, count[, "yes": by an own error]
  local host=$1 by how_long="for $back s"
  [ -z "${left_out[$host]-}" ] || return 1
  blamed[$host]=$((${blamed[$host]-0} + $2))
  [ "${blamed[$host]}" -ge 2 ] || return 1
  by="${blamed[$host]} faults"
  [ "${wrong[$host]-0}" -lt 2 ] || by="${wrong[$host]} findings of wrong values" how_long="for good"
  if [ $((ranks - slots[$host])) -lt "$least" ]; then
    say "host $host was named by $by, but without it there are fewer than $least ranks (--min-ranks)"
    return 1
  fi
  left_out[$host]=$SECONDS ranks=$((ranks - slots[$host]))
  say "host $host was named by $by: left out from here on, $how_long"
  [ -z "${excused[$host]-}${3-}" ] && excused[$host]=yes
}

# Runs the command with the hosts of the moment.
start() {  # command...
  if [ -n "$host_file" ]; then
    choose_hosts
    [ -z "$asked" ] || exit $((status > 0 ? status : 143))
    set -- "${@//\{hosts\}/$names}"
    set -- "${@//\{ranks\}/$ranks}"
  fi
  run "$@"
}

# Sets a variable to the whole number that an option takes.
number() {  # variable, least, most, unit, option, value
  [[ ${6-} =~ ^[0-9]{1,6}$ && $((10#$6)) -ge $2 && $((10#$6)) -le $3 ]] || fail "$5 takes $2 to $3$4, found '${6-}'"
  printf -v "$1" %d "$((10#$6))"
}

# Reads the options, and sets `command` to what follows --.
read_options() {  # arguments...
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help) usage; exit 0 ;;
      --checkpoints) checkpoints=${2-}; shift 2 || fail "--checkpoints takes a folder" ;;
      --wait) number pause 0 9999 " s" "$@"; shift 2 ;;
      --give-up) number patience 1 999999 "" "$@"; shift 2 ;;
      --min-ranks) number least 1 999999 "" "$@"; of_hosts=$1; shift 2 ;;
      --back) number back 0 999999 " s" "$@"; of_hosts=$1; shift 2 ;;
      --hosts) host_file=${2-}; shift 2 || fail "--hosts takes a file" ;;
      --agent) read -ra agent <<<"${2-}"; of_hosts=$1; shift 2 || fail "--agent takes a command" ;;
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
  look_for "$1"
  [ -z "$of_hosts" ] || [ -n "$host_file" ] || fail "$of_hosts is given without --hosts; add --hosts FILE"
  [ -z "$host_file" ] || read_hosts
  [[ -z $host_file || $* == *'{hosts}'* ]] ||
    say "warning: without {hosts} in the command a host is left out only if the command reads ZERO_HOSTS"
  if [ -z "$checkpoints" ]; then
    checkpoints=$(folder_of "$@")
    [ $? -ne $never ] || exit $never  # zero_train has said why no start would work
    [ -n "$checkpoints" ] ||
      fail "the command has no zero_train that tells a run.checkpoint.folder; give --checkpoints FOLDER"
    [[ $checkpoints == /* ]] || ! has '--?wd|--?wdir(=.*)?|--chdir(=.*)?' "$@" ||
      fail "run.checkpoint.folder: found '$checkpoints', expected an absolute path under a launcher that changes the \
working directory; or give --checkpoints FOLDER"
  else
    [ -d "$checkpoints" ] || say "there is no folder $checkpoints; if the job saves elsewhere, none of its steps count"
  fi
  ! has '(.*/)?srun' "$@" || of_srun=yes
  scratch=$(mktemp -d) || fail "no folder for temporary files; set TMPDIR to one"
  trap 'rm -rf "$scratch"' EXIT
  trap 'pass_on TERM' TERM HUP
  trap 'pass_on INT' INT
  trap 'pass_on USR1' USR1
  trap 'pass_on USR2' USR2

  local there newest=-1 step further fruitless=0 line wait=$pause
  unset ZERO_RESTART; export ZERO_RESTART  # of a job around this one: the first start is none of its restarts
  local -A saves=()
  while :; do
    there=$(committed)
    start "$@"
    case $status${asked:+ asked} in
      0 | 143 | 130 | *asked) exit "$status" ;;
      "$never")
        say "status $status: will fail again: the command line or the configuration is wrong; not started again"
        exit "$status"
        ;;
    esac
    further=no
    for step in $(steps_since "$there"); do
      newest=$step
      saves[$step]=$((${saves[$step]-0} + 1))
      [ "${saves[$step]}" -gt 2 ] || further=yes
    done
    line=$(cause_line)
    fruitless=$((fruitless + (restarts > 0)))
    if blame "$line" || [ $further = yes ]; then fruitless=0; fi
    if [ $fruitless -ge "$patience" ]; then
      say "status $status again, and no further step was saved since the last fault: giving up; $(so_far "$newest")"
      exit "$status"
    fi
    restarts=$((restarts + 1))
    ZERO_RESTART="$restarts: status $status after $ran s${line:+, $line}"$'\t'$(realpath -m -- "$checkpoints")
    [ "$ran" -lt 600 ] || wait=$pause
    say "status $status after $ran s; $(so_far "$newest"); starting again in $wait s"
    rest "$wait"
    [ -z "$asked" ] || exit "$status"
    wait=$((wait * 2 < 300 ? wait * 2 : 300))
  done
}

main "$@"
