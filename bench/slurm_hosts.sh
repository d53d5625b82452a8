#!/bin/bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Starts Slurm on hosts that `ssh` reaches and that see one file system: munge and a controller on the first host, a
# daemon on each. Its files, keys and logs are in FOLDER; FOLDER/slurm.conf is for SLURM_CONF, with SLURM_LINES as its
# last lines. bench/two_hosts.sh uses it.
#
#   bench/slurm_hosts.sh FOLDER HOST...
set -euo pipefail
[[ $# -ge 2 ]] || { echo "usage: bench/slurm_hosts.sh FOLDER HOST..." >&2; exit 1; }
folder=$(realpath "$1")
shift

fail() {
  echo "slurm_hosts: $1" >&2
  exit 1
}

# Processes that stay: their output goes to a file, else whoever reads ours would wait for them.
munge_folder=$folder/munge
mkdir -p "$munge_folder" "$folder/state"
chmod 755 "$folder" "$munge_folder"
dd if=/dev/urandom of="$munge_folder/key" bs=128 count=1 status=none
chmod 400 "$munge_folder/key"
ssh "$1" "munged --force --socket '$munge_folder/socket' --key-file '$munge_folder/key' --pid-file '$munge_folder/pid' \
  --log-file '$munge_folder/log' --seed-file '$munge_folder/seed' >'$munge_folder/out' 2>&1" ||
  fail "munged does not start: $(tail -n 2 "$munge_folder/out" "$munge_folder/log" | tr '\n' ' ')"

cat >"$folder/slurm.conf" <<CONF
ClusterName=zero
SlurmctldHost=$1
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$munge_folder/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmctldPidFile=$folder/slurmctld.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmdLogFile=$folder/slurmd.%n.log
SlurmdSpoolDir=$folder/spool.%n
TmpFS=$folder/tmp.%n
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2
SwitchType=switch/none
ReturnToService=2
JobRequeue=1
KillWait=5
SlurmdParameters=config_overrides
$(for host; do echo "NodeName=$host CPUs=8 State=UNKNOWN"; done)
PartitionName=all Nodes=$(IFS=,; echo "$*") Default=YES MaxTime=INFINITE OverSubscribe=NO State=UP
${SLURM_LINES-}
CONF
echo "CgroupPlugin=cgroup/v1
CgroupAutomount=no" >"$folder/cgroup.conf"
export SLURM_CONF=$folder/slurm.conf

ssh "$1" "slurmctld >'$folder/slurmctld.out' 2>&1" || fail "slurmctld does not start: $(tail -n 3 "$folder/slurmctld.out")"
for host; do
  mkdir -p "$folder/tmp.$host"
  ssh "$host" "slurmd >'$folder/slurmd.$host.out' 2>&1" ||
    fail "slurmd does not start on $host: $(tail -n 3 "$folder/slurmd.$host.out" "$folder/slurmd.$host.log" 2>&1)"
done
for _ in $(seq 100); do
  idle=$(ssh "$1" "sinfo --noheader --states=idle --format %D" 2>/dev/null || true)
  [[ $idle == "$#" ]] && exit 0
  sleep 0.2
done
fail "after 20 s ${idle:-none} of $# hosts are idle: $(tail -n 4 "$folder"/slurmctld.log "$folder"/slurmd.*.log)"
