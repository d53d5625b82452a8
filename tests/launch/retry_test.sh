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
  "$retry" --checkpoints ck --wait 00 -- ./job.sh "$@" 2>said
  status=$?
  starts=$(wc -l <starts)
}

attempt 0
expect "a job that ends well" "$status $starts" "0 1"
attempt 1+ 1+ 137+ 0
expect "a job that saves a step between faults" "$status $starts" "0 4"
attempt 1 1 0
expect "a job that saves no step" "$status $starts" "1 2"
expect "its last words" \
  "$(grep -c 'no further step was saved since the last fault (nothing saved yet): giving up' said)" 1
attempt 7+ 7 0
expect "a job that stops saving" "$status $starts" "7 2"
# What lay there before the first start tells nothing: it may be damaged, or another run's.
stale() { mkdir -p ck/step_00000900 && touch ck/step_00000900/COMMIT; }
before=stale
attempt 1+ 1+ 137+ 0
expect "a job below a step of another run" "$status $starts" "0 4"
attempt 1+ 1 0
expect "a job that stops saving below such a step" "$status $starts" "1 2"
expect "how far it was" "$(grep -c 'fault (saved up to step 1): giving up' said)" 1
before=
attempt 1+ =1 =1 0
expect "a job that saves the same step again and again" "$status $starts" "1 3"
attempt ^1 1+ 1+ 0
expect "a job that goes on below a damaged step of its own" "$status $starts" "0 4"
attempt ^1 1+ 1 0
expect "a job that stops saving below such a step" "$status $starts" "1 3"
expect "how far it was" "$(grep -c 'fault (saved up to step 2): giving up' said)" 1
attempt ^1 1+ ^1 0
expect "a job that saves a damaged step once more" "$status $starts" "0 4"

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
for each in "TERM 3 TERM" "HUP 3 TERM" "USR2 4 USR2"; do
  read -r signal code heard <<<"$each"
  rm -f ready heard
  "$retry" --checkpoints ck --wait 30 -- ./told.sh 2>said &
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
refused "a command is missing behind --"
refused "unknown option '-x'; write -- before the command" -x
refused "--wait takes seconds, found 'soon'" --wait soon -- true
refused "give --checkpoints FOLDER" -- true
printf '#!/bin/sh\necho "zero_train: c.json: no such file" >&2\nexit 1\n' >zero_train
refused "give --checkpoints FOLDER" -- ./zero_train --config c.json
expect "the command's own error" "$(grep -c 'zero_train: c.json: no such file' said)" 1
refused "--checkpoints takes a folder" --checkpoints

exit $((failures > 0))
