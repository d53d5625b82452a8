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

# job.sh STATUS...: its n-th start ends with the n-th status; a start that is told "N+" saves a step first.
cat >job.sh <<'JOB'
#!/usr/bin/env bash
echo >>starts
n=$(wc -l <starts)
word=${!n-0}
if [[ $word == *+ ]]; then
  mkdir -p "ck/step_0000000$n" && touch "ck/step_0000000$n/COMMIT"
fi
mkdir -p "ck/step_0000009$n.partial" && touch "ck/step_0000009$n.partial/COMMIT"
exit "${word%+}"
JOB
chmod +x job.sh

attempt() {  # statuses...
  rm -rf ck starts
  "$retry" --checkpoints ck --wait 0 -- ./job.sh "$@" 2>said
  status=$?
  starts=$(wc -l <starts)
}

attempt 0
expect "a job that ends well" "$status $starts" "0 1"
attempt 1+ 1+ 137+ 0
expect "a job that saves a step between faults" "$status $starts" "0 4"
attempt 1 1 0
expect "a job that saves no step" "$status $starts" "1 2"
expect "its last words" "$(grep -c 'no step was saved since the last fault (newest: none): giving up' said)" 1
attempt 7+ 7 0
expect "a job that stops saving" "$status $starts" "7 2"
for told in 143 130; do
  attempt "$told" 0
  expect "a job that is told to end" "$status $starts" "$told 1"
done

# Signals are passed on, and end the wait before a restart.
cat >told.sh <<'JOB'
#!/usr/bin/env bash
trap 'echo USR1 >>heard' USR1
trap 'echo TERM >>heard; exit 3' TERM
echo >>ready
while :; do sleep 0.05; done
JOB
chmod +x told.sh
until_there() { until [ -s "$1" ]; do sleep 0.02; done; }
"$retry" --checkpoints ck --wait 30 -- ./told.sh 2>said &
pid=$!
until_there ready
kill -USR1 $pid
until_there heard
kill -TERM $pid
wait $pid
expect "the status of a job that is told to end" $? 3
expect "what it heard" "$(tr '\n' ' ' <heard)" "USR1 TERM "

rm -rf ck starts
"$retry" --checkpoints ck --wait 30 -- ./job.sh 5+ 5 2>said &
pid=$!
until grep -q 'starting again in 30 s' said; do sleep 0.02; done
kill -TERM $pid
wait $pid
expect "the status while it waits" $? 5

# The folder is that of the zero_train in the command.
cat >zero_train <<'JOB'
#!/usr/bin/env bash
if [ "${*: -1}" = --print-config ]; then
  echo 'run.checkpoint.every_steps                           = 5                        # c.json'
  echo 'run.checkpoint.folder                                = "the folder"             # c.json'
  exit
fi
mkdir -p "the folder/step_00000001" && touch "the folder/step_00000001/COMMIT"
echo >>runs
exit 1
JOB
chmod +x zero_train
"$retry" --wait 0 -- env A=b ./zero_train --config c.json 2>said
expect "a fault of zero_train" "$? $(wc -l <runs)" "1 2"
expect "its newest step" "$(grep -c 'newest: 1)' said)" 1

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
