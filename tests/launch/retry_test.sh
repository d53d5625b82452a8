#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# launch/retry.sh, over commands that fail, save and end as told.
set -uo pipefail
retry=$(realpath "$(dirname "$0")/../../launch/retry.sh")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0

expect() {  # what found expected
  [ "$2" = "$3" ] && return
  echo "$1: found '$2', expected '$3'"
  failures=$((failures + 1))
}

# job.sh STATUS...: its n-th start ends with the n-th status; one that is told "N+" saves a step first, "=N" the first
# step once more, "^N" step 50.
cat >job.sh <<'JOB'
#!/usr/bin/env bash
echo >>starts
n=$(wc -l <starts)
word=${!n-0}
if [[ $word == *+ ]]; then
  mkdir -p "ck/step_0000000$n" && touch "ck/step_0000000$n/COMMIT"
fi
if [[ $word == =* ]]; then
  rm -r ck/step_00000001 && mkdir ck/step_00000001 && touch ck/step_00000001/COMMIT
fi
if [[ $word == ^* ]]; then
  mkdir -p ck/step_00000050 && touch ck/step_00000050/COMMIT
fi
mkdir -p "ck/step_0000009$n.partial" && touch "ck/step_0000009$n.partial/COMMIT"
word=${word#[=^]}
exit "${word%+}"
JOB
chmod +x job.sh

attempt() {  # statuses...
  rm -rf ck starts
  ${before-}
  # shellcheck disable=SC2086
  "$retry" --checkpoints ck --wait 00 ${flags-} -- ./job.sh "$@" 2>said
  status=$?
  starts=$(wc -l <starts)
}

attempt 0
expect "a job that ends well" "$status $starts" "0 1"
attempt 1+ 1+ 137+ 0
expect "a job that saves a step between faults" "$status $starts" "0 4"
attempt 1 1 0
expect "a job that saves no step" "$status $starts" "1 2"
expect "its last words" "$(grep -c 'no further step was saved since the last fault: giving up; nothing saved yet$' said)" 1
expect "a folder that the job may make" "$(head -n 1 said)" \
  "retry: there is no folder ck; if the job saves elsewhere, none of its steps count"
attempt 7+ 7 0
expect "a job that stops saving" "$status $starts" "7 2"
# What lay there before the first start tells nothing: it may be damaged, or another run's.
stale() { mkdir -p ck/step_00000900 && touch ck/step_00000900/COMMIT; }
before=stale
attempt 1+ 1+ 137+ 0
expect "a job below a step of another run" "$status $starts" "0 4"
attempt 1+ 1 0
expect "a job that stops saving below such a step" "$status $starts" "1 2"
expect "how far it was" "$(grep -c 'fault: giving up; saved up to step 1$' said)" 1
attempt 1 1 0
expect "a job that saves nothing above such a step" \
  "$(grep -cE '(after [0-9]+ s|giving up); no step saved since retry.sh began \(newest: step 900\)(;|$)' said)" 2
expect "its folder" "$(grep -c 'there is no folder' said)" 0
before=
attempt 1+ =1 =1 0
expect "a job that saves the same step again and again" "$status $starts" "1 3"
attempt ^1 1+ 1+ 0
expect "a job that goes on below a damaged step of its own" "$status $starts" "0 4"
attempt ^1 1+ 1 0
expect "a job that stops saving below such a step" "$status $starts" "1 3"
expect "how far it was" "$(grep -c 'fault: giving up; saved up to step 2$' said)" 1
attempt ^1 1+ ^1 0
expect "a job that saves a damaged step once more" "$status $starts" "0 4"

attempt 1+ 78 0
expect "a job that will fail again" "$status $starts" "78 2"
expect "why it is not started again" \
  "$(grep -c 'status 78: will fail again: the command line or the configuration is wrong; not started again' said)" 1
flags="--give-up 3"
attempt 1 1 1 0
expect "a job with more patience" "$status $starts" "0 4"
attempt 1 1 1 1 0
expect "a job that wears it out" "$status $starts" "1 4"
attempt 1 1 1+ 1 1 1 1 0
expect "a step that gives it back" "$status $starts" "1 6"
flags=

# The next start is told of the fault.
cat >talks.sh <<'JOB'
#!/usr/bin/env bash
echo >>starts
echo "${ZERO_RESTART-none}" | sed "s|\t$PWD/ck$| of ck|" >>causes
if [ "$(wc -l <starts)" = 1 ]; then
  echo "zero_train: [rank 0] rank 1 was lost" >&2
  echo "zero_train: warning: no cause" >&2
fi
exit 137
JOB
chmod +x talks.sh
rm -rf ck starts
ZERO_RESTART="7: of a job around this one" "$retry" --checkpoints ck --wait 0 --give-up 2 -- ./talks.sh 2>said
expect "a job that is killed" $? 137
expect "the first start's cause" "$(sed -n 1p causes)" none
expect "the first restart's cause" "$(sed -nE '2s/after [0-9]+ s/after N s/p' causes)" \
  "1: status 137 after N s, zero_train: [rank 0] rank 1 was lost of ck"
expect "a cause without words" "$(sed -nE '3s/after [0-9]+ s/after N s/p' causes)" "2: status 137 after N s of ck"
expect "the job's own words" "$(grep -c '^zero_train: warning: no cause$' said)" 1

# on_hosts.sh HOSTS RANKS: its n-th start says line n of the file "words", and ends with 1, but well without such a line.
cat >on_hosts.sh <<'JOB'
#!/usr/bin/env bash
echo "$1 $2 $ZERO_HOSTS $ZERO_RANKS" >>seen
n=$(wc -l <seen)
[ "$n" -le "$(wc -l <words)" ] || exit 0
sed -n "${n}p" words >&2
exit 1
JOB
# agent.sh HOST COMMAND...: reaches a host unless there is a file down.HOST, whose lines are its words, a time each.
cat >agent.sh <<'JOB'
#!/usr/bin/env bash
[ -s "down.$1" ] || exec "${@:2}"
sed -n 1p "down.$1" >&2
sed -i 1d "down.$1"
exit 255
JOB
chmod +x on_hosts.sh agent.sh
printf '# ours\nhost-a slots=4\nhost-b:4\n\nhost-c\n' >hosts
mkdir -p ck
killed="mpirun noticed that process rank 3 with PID 0 on node host-b exited on signal 9 (Killed)."
lost="zero_train: [rank 0] rank 3 on host host-b ended by signal 9 (SIGKILL); rank 0 on host host-a waited"
on_hosts() {  # flags of retry.sh...
  rm -rf seen
  "$retry" --checkpoints ck --wait 0 --hosts hosts --agent ./agent.sh "$@" -- ./on_hosts.sh '{hosts}' '-np={ranks}' 2>said
  status=$?
  seen=$(tr '\n' '|' <seen)
}
all="host-a:4,host-b:4,host-c:1 -np=9 host-a:4,host-b:4,host-c:1 9|"
without_b="host-a:4,host-c:1 -np=5 host-a:4,host-c:1 5|"
printf '%s\n' "$killed" "$lost" >words
on_hosts
expect "a host that two faults name" "$status $seen" "0 $all$all$without_b"
expect "the start without it" "$(tail -n 1 said)" "retry: left out: host-b; 5 of 9 slots: starting with these"
printf 'zero_train: rank 3 %0450d (rank 3 on host host-b)\n' 1 2 >words
on_hosts
expect "a host at the end of long lines" "$status $seen" "0 $all$all$without_b"
expect "that it is left out" "$(grep -c 'host host-b was named by 2 faults: left out from here on, for 1800 s' said)" 1
printf '%s\n' "$killed" "${killed/mpirun/prterun}" >words  # Open MPI 5
on_hosts
expect "a host that two launchers name" "$status $seen" "0 $all$all$without_b"
printf '%s\n' "$killed" "$lost" "another" >words
on_hosts --back 0 --give-up 2
expect "a host that is taken back" "$status $seen" "0 $all$all$all$all"
expect "that it is taken back" "$(grep -c 'host host-b is taken back after' said)" 1
printf '%s\n' "$killed" "$killed" "$killed" "$killed" >words
on_hosts --min-ranks 6
expect "hosts that are needed" "$status $seen" "1 $all$all"
expect "that they are needed" "$(grep -c 'but without it there are fewer than 6 ranks (--min-ranks)' said)" 1

# Errors of a rank's own work count against its host, and bring no further try: all hosts may share what fails.
late="zero_train: [rank 0] barrier(h.7): waiting for 600 s for rank 3 (on host host-b: unknown), the timeout of \
collectives; find out what holds each of them up, or raise run.collective_timeout (WaitLimits::timeout)"
printf '%s (rank 3 on host host-b)\n' "$late" "zero_train: rank 3 has not entered barrier(h.7) #1" >words
on_hosts
expect "a host whose rank hangs" "$status $seen" "0 $all$all$without_b"
own="zero_train: cannot read the token file /data/train.bin: Input/output error (rank 3 on host"
printf '%s host-%s)\n' "$own" b "$own" b "$own" c "$own" c >words
on_hosts
expect "an error of a rank's own" "$status $seen" "1 $all$all"
on_hosts --give-up 3
expect "an error on one host after the other" "$status $seen" "1 $all$all$without_b$without_b"
quotes="zero_train: cannot connect to host host-a port 29400 (rank 1 on host host-c): refused (rank 3 on host host-b)"
printf '%s\n' "$quotes" "$quotes" >words
on_hosts --give-up 2
expect "an error that quotes another host" "$status $seen" "0 $all$all$without_b"

# Wrong values: two findings of a host leave it out for good, whatever names it along.
restarted() { grep -c "host $1 was named by $2 findings of wrong values: left out from here on, for good" said; }
twice="zero_train: host host-b.cluster computed wrongly twice, in steps 4 and 12: take it out (run.check_compute_every)"
changed() {  # sender receiver
  echo "zero_train: [rank 5] reduce_scatter(h.7) in step 8: 98 bf16 values of rank 2 (host $1) had checksum 6b1f when" \
    "they were sent, and have 09c2 on rank 5 (host $2): memory, or the way between the two, has changed them"
}
printf '%s\n' "$twice" another >words
on_hosts --back 0 --give-up 2
expect "a host that computed wrongly twice" "$status $seen" "0 $all$without_b$without_b"
expect "that it is left out for good" "$(restarted host-b 2)" 1
printf '%s\n' "$(changed host-a host-b)" "$(changed host-b host-c)" another >words
on_hosts --back 0 --give-up 2
expect "a host that changed values with two partners" "$status $seen" "0 $all$all$without_b$without_b"
printf '%s\n' "$(changed host-a host-c)" "$(changed host-a host-c)" >words
on_hosts
expect "two hosts of which one changes values" "$status $seen" "0 $all$all""host-b:4 -np=4 host-b:4 4|"
differ="zero_train: [rank 0] check_replicas: after step 9 the master values of \"x\" on rank 3 differ from those on rank 0, \
which must have the same bits; one of the two computed or kept wrong ones: test the host of rank 3, host-b, and that of \
rank 0, host-a"
printf '%s\n' "$differ" "$(changed host-c host-b)" >words
on_hosts
expect "a host whose copies differ" "$status $seen" "0 $all$all$without_b"
warned="zero_train: warning: step 4: block 3 computed again from the same input has other bits of q, k and v than before: \
rank 2 (host host-b) computed or kept it wrongly (run.check_compute_every)"
printf '%s\n' "$warned" "${warned/step 4/step 6}" >words
on_hosts
expect "findings of two starts" "$status $seen" "0 $all$all$without_b"
# say.sh: as on_hosts.sh, a start that says all lines up to an empty one.
cat >say.sh <<'JOB'
#!/usr/bin/env bash
echo "$1" >>seen
n=$(wc -l <seen)
awk -v n="$n" 'BEGIN { RS = "" } NR == n' words >&2
exit 1
JOB
chmod +x say.sh
say() {  # flags of retry.sh...
  rm -f seen
  "$retry" --checkpoints ck --wait 0 --hosts "$@" --agent true -- ./say.sh '{hosts}' 2>said
  seen=$(tr '\n' '|' <seen)
}
printf '%s\n' "$warned" "${warned/block 3/block 7}" "" "${warned/step 4/step 6}" "" >words
say hosts --give-up 2
expect "two findings of one step" "$seen" "host-a:4,host-b:4,host-c:1|host-a:4,host-b:4,host-c:1|host-a:4,host-c:1|host-a:4,host-c:1|"
expect "that they are one" "$(restarted host-b 2)" 1
# Hosts whose names begin alike are told apart, and so are addresses.
refused_by() { printf 'ssh: connect to host %s port 22: Connection refused\n\n' "$1"; }
printf '10.0.0.1\n10.0.0.2\n' >addresses
{ refused_by 10.0.0.2; refused_by 10.0.0.2; } >words
say addresses
expect "a host that is an address" "$seen" "10.0.0.1:1,10.0.0.2:1|10.0.0.1:1,10.0.0.2:1|10.0.0.1:1|"
printf 'n1.east\nn1.west\n' >twins
{ refused_by n1.west; refused_by n1.west; } >words
say twins
expect "a host whose first label another has" "$seen" "n1.east:1,n1.west:1|n1.east:1,n1.west:1|n1.east:1|"
{ refused_by n1; refused_by n1; } >words
say twins
expect "a name that two hosts may have" "$seen" "n1.east:1,n1.west:1|n1.east:1,n1.west:1|"
printf '%s\n' "${twice/host host-b.cluster/one of the hosts host-a, host-b}" >words
on_hosts --min-ranks 5
expect "two hosts of which one is needed" "$status $seen" "0 $all""host-b:4,host-c:1 -np=5 host-b:4,host-c:1 5|"
expect "that it is needed" \
  "$(grep -c 'named by 2 findings of wrong values, but without it there are fewer than 5 ranks' said)" 1
: >words
echo "ssh: no route to host-b" >down.host-b
on_hosts
expect "a host that the agent does not reach" "$status $seen" "0 $without_b"
expect "that it is named" "$(cat said)" \
  'retry: not reached: host-b ("ssh: no route to host-b"); 5 of 9 slots: starting with these'
printf 'no route\n\n' >down.host-b
on_hosts --min-ranks 9
expect "a host that comes" "$status $seen" "0 $all"
expect "that it is waited for" "$(cat said)" \
  "retry: not reached: host-b (\"no route\"); 5 of 9 slots, expected at least 9 (--min-ranks); try 1 of 12, again in 0 s
retry: not reached: host-b (\"status 255\"); 5 of 9 slots, expected at least 9 (--min-ranks); try 2 of 12, again in 0 s"
seq 99 >down.host-b
rm -f seen && : >seen
"$retry" --checkpoints ck --wait 0 --hosts hosts --agent ./agent.sh --min-ranks 9 -- ./on_hosts.sh 2>said
expect "a host that does not come" "$? $(wc -l <seen)" "1 0"
expect "its last words" \
  "$(grep -c '(\"12\"); 5 of 9 slots, expected at least 9 (--min-ranks); try 12 of 12: giving up$' said)" 1
seq 99 | tee down.host-a down.host-c >down.host-b
rm -f seen
"$retry" --checkpoints ck --wait 0 --hosts hosts --agent ./agent.sh -- ./on_hosts.sh 2>said
expect "no host at all" "$? $([ -e seen ] || echo none)" "1 none"
expect "their names" "$(grep -c 'reached: host-a ("3"), host-b ("3"), host-c ("3"); 0 of 9 slots, .*; try 3 of' said)" 1
rm down.host-a down.host-b down.host-c
printf 'localhost' >here
"$retry" --checkpoints ck --hosts here -- env true '{ranks}' 2>said
expect "a command that is not told the hosts" "$? $(cat said)" \
  "0 retry: warning: without {hosts} in the command a host is left out only if the command reads ZERO_HOSTS"
"$retry" --checkpoints ck --hosts here --agent /no/agent -- ./on_hosts.sh '{hosts}' '{ranks}' 2>said
expect "this host, which needs no agent" "$? $(cat said seen)" "0 localhost:1 1 localhost:1 1"

"$retry" --checkpoints kc --wait 0 -- false 2>said
expect "a folder that is never made" "$? $(grep -c 'nothing saved: there is no folder kc' said)" "1 2"

for told in 143 130; do
  attempt "$told" 0
  expect "a job that is told to end" "$status $starts" "$told 1"
done

# Signals are passed on, and those that ask for an end end the wait before a restart.
cat >told.sh <<'JOB'
#!/usr/bin/env bash
trap 'echo USR1 >>heard' USR1
trap 'echo USR2 >>heard; exit 4' USR2
trap 'echo TERM >>heard; exit 3' TERM
echo >>ready
while :; do sleep 0.05; done
JOB
chmod +x told.sh
until_there() { until [ -s "$1" ]; do sleep 0.02; done; }
cp told.sh srun  # which would kill its ranks
for each in "TERM 3 TERM ./told.sh" "HUP 3 TERM ./told.sh" "USR2 4 USR2 ./told.sh" "TERM 4 USR2 ./srun" \
  "HUP 4 USR2 env A=1 ./srun -n 2 zero_train" "TERM 3 TERM ./told.sh zero_train srun"; do
  read -r signal code heard command <<<"$each"
  rm -f ready heard
  # shellcheck disable=SC2086
  "$retry" --checkpoints ck --wait 30 -- $command 2>said &
  pid=$!
  until_there ready
  kill -USR1 $pid
  until_there heard
  kill -s "$signal" $pid
  wait $pid
  expect "the status of a job that is told to end" $? "$code"
  expect "what it heard" "$(tr '\n' ' ' <heard)" "USR1 $heard "
done

rm -rf ck starts
"$retry" --checkpoints ck --wait 08 -- ./job.sh 5+ 5 2>said &
pid=$!
until grep -q 'starting again in 8 s' said; do sleep 0.02; done
kill -USR1 $pid
until grep -q 'SIGUSR1: no job runs' said; do sleep 0.02; done
sleep 0.3
kill -TERM $pid
wait $pid
expect "the status while it waits" $? 5
expect "starts when SIGUSR1 comes while it waits" "$(wc -l <starts)" 1

# The folder is that of the zero_train in the command.
cat >zero_train <<'JOB'
#!/usr/bin/env bash
folder='the "folder" \ of it'
if [ "${*: -2}" = "--print-value run.checkpoint.folder" ]; then
  echo "$folder"
  exit
fi
mkdir -p "$folder/step_00000001" && touch "$folder/step_00000001/COMMIT"
echo >>runs
exit 1
JOB
chmod +x zero_train
"$retry" --wait 0 -- env A=b ./zero_train --config c.json 2>said
expect "a fault of zero_train" "$? $(wc -l <runs)" "1 3"
expect "its newest step" "$(grep -c 'saved up to step 1; starting again' said)" 2

# A launcher that changes the working directory: the folder is told in another one.
rm -f runs
"$retry" --wait 0 -- env true -wdir / ./zero_train --config c.json 2>said
expect "a relative folder elsewhere" "$? $(grep -c "expected an absolute path under a launcher that changes the working" said)" "2 1"
"$retry" --wait 0 -- ./zero_train --chdir / 2>said
expect "an argument of zero_train's own" $? 1
sed -i "s|^folder=.*|folder='$folder/ck'|" zero_train
"$retry" --wait 0 -- env --chdir=. ./zero_train --config c.json 2>said
expect "an absolute folder elsewhere" $? 1

refused() {  # message arguments...
  local message=$1
  shift
  "$retry" "$@" 2>said
  expect "status of a refusal" $? 2
  expect "refusal" "$(grep -cF -- "$message" said)" 1
}
: >none
refused "a command is missing behind --"
refused "no program /no/such/program" --checkpoints ck -- /no/such/program
refused "no program ./none that may be executed" -- ./none
refused "no program nonesuch" --hosts none.txt -- nonesuch zero_train
refused "unknown option '-x'; write -- before the command" -x
refused "--wait takes 0 to 9999 s, found 'soon'" --wait soon -- true
refused "--wait takes 0 to 9999 s, found '99999'" --wait 99999 -- true
refused "--wait takes 0 to 9999 s, found ''" --wait
refused "--back takes 0 to 999999 s, found '1000000'" --back 1000000 --hosts none.txt -- true
refused "give --checkpoints FOLDER" -- true
refused "--give-up takes 1 to 999999, found '0'" --give-up 0 -- true
refused "--give-up takes 1 to 999999, found 'soon'" --give-up soon -- true
refused "--min-ranks takes 1 to 999999, found '-1'" --min-ranks -1 -- true
refused "--min-ranks is given without --hosts; add --hosts FILE" --min-ranks 2 -- true
refused "--hosts: none.txt cannot be read" --hosts none.txt -- true
printf 'a slots=4\na:2\n' >twice
refused "--hosts: twice names a twice" --hosts twice -- true
refused "--agent: no program /no/agent" --agent "/no/agent -x" --hosts hosts -- true
refused "--agent: no program" --agent "" --hosts hosts -- true
printf 'a, b\n' >odd
refused "--hosts: odd: found 'a, b', expected NAME, NAME:SLOTS or NAME slots=SLOTS" --hosts odd -- true
: >empty
refused "--hosts: empty names no host" --hosts empty -- true
printf 'localhost slots=2\nhost-b\n' >few
refused "--hosts: few has 3 slots in all, --min-ranks asks for 4" --min-ranks 4 --hosts few --checkpoints ck -- touch began
expect "a job that can never start" "$([ -e began ] || echo none)" none
printf '#!/bin/sh\necho "zero_train: c.json: no such file" >&2\nexit 1\n' >zero_train
refused "give --checkpoints FOLDER" -- ./zero_train --config c.json
expect "the command's own error" "$(grep -c 'zero_train: c.json: no such file' said)" 1
printf '#!/bin/sh\necho "zero_train: unknown key" >&2\nexit 78\n' >zero_train
"$retry" -- ./zero_train --config c.json 2>said
expect "a configuration that never works" "$? $(cat said)" "78 zero_train: unknown key"
refused "--checkpoints takes a folder" --checkpoints

exit $((failures > 0))
