#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# bench/launchers.sh, told to end in the midst of a run, ends that run and leaves nothing. Its programs and its hosts
# are stand-ins.
set -uo pipefail
bench=$(realpath "$(dirname "$0")/../../bench")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
mkdir -p root/bench root/docs programs temporary
cp "$bench/launchers.sh" root/bench
failures=0

expect() {  # what found expected
  [ "$2" = "$3" ] && return
  echo "$1: found '$2', expected '$3'"
  failures=$((failures + 1))
}

# Each writes its number into FOLDER/started once it would run for long, and into FOLDER/told when it is told to end.
long_program() {  # path
  cat >"$1" <<PROGRAM
#!/usr/bin/env bash
trap 'kill \$!; echo \$\$ >"$folder/told"; exit 143' TERM
[ ! -e "$folder/quick" ] || { echo '"state_hash":"0"' >run.log; exit 0; }
sleep 100000 &
echo \$\$ >"$folder/started.part" && mv "$folder/started.part" "$folder/started"
wait
PROGRAM
  chmod +x "$1"
}
long_program programs/zero_train
long_program root/bench/two_hosts.sh
sed -i '/quick/d' root/bench/two_hosts.sh
printf '#!/bin/sh\n' >programs/zero_prepare
chmod +x programs/zero_prepare

ends_its_run() {  # which
  local number status
  rm -f started told
  TMPDIR=$folder/temporary root/bench/launchers.sh --launchers mpirun --programs programs >out 2>&1 &
  number=$!
  until [ -e started ] || ! kill -0 "$number" 2>/dev/null; do sleep 0.05; done
  kill -TERM "$number"
  wait "$number"
  status=$?
  expect "$1: status" "$status" 143
  expect "$1: told" "$(cat told 2>&1)" "$(cat started 2>&1)"
  expect "$1: files left" "$(ls temporary)" ""
  [ -s out ] && [ "$failures" -gt 0 ] && cat out
}
ends_its_run "threads of one process"
touch quick
ends_its_run "hosts"
[ "$failures" -eq 0 ]
