#!/bin/bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Trains a tiny model on two namespaced hosts (bench/two_hosts.sh) under every launcher, every script for Slurm of
# examples/cloud and every recipe of docs/faults.md, whose runs are disturbed, and compares the state_hash of each run
# with that of threads of one process. As root.
#
#   bench/launchers.sh [--ranks N] [--rate RATE] [--launchers LIST] [--programs DIR]
#
#   --ranks N          ranks a host (4)
#   --rate RATE        of the link, as tc has it (1gbit)
#   --launchers LIST   mpirun,srun,plain_srun,torchrun,torchrun_host2,elastic,sbatch,array,requeue,retry_sbatch,requeue_exit
#   --programs DIR     build/bin
#
# TORCHRUN names torchrun if it is not in the path. Ends with 1 if a run failed or a hash differs; told to end (SIGTERM,
# SIGINT), ends the run at once, and its hosts with it.
set -euo pipefail

fail() { echo "launchers: $1" >&2; exit 1; }

root=$(realpath "$(dirname "$0")/..")
ranks=4 rate=1gbit programs=$root/build/bin
launchers=mpirun,srun,plain_srun,torchrun,torchrun_host2,elastic,sbatch,array,requeue,retry_sbatch,requeue_exit
while [[ $# -gt 0 ]]; do
  case $1 in
    -h | --help) sed -n '5,18s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --ranks | --rate | --launchers | --programs)
      [[ $# -ge 2 ]] || fail "$1 takes a value; see bench/launchers.sh --help"
      declare "${1#--}=$2"
      shift 2
      ;;
    *) fail "unknown option \"$1\"; see bench/launchers.sh --help" ;;
  esac
done
programs=$(realpath "$programs")
train=$programs/zero_train
[[ -x $train && -x $programs/zero_prepare ]] || fail "$programs has no zero_train and zero_prepare; build them"

scratch=$(mktemp -d)
clean_up() {
  { jobs -p | xargs -r kill && wait; } 2>/dev/null || true  # the shell tells there of what was killed
  rm -rf "$scratch"
}
trap clean_up EXIT
trap 'trap "" INT TERM; exit 130' INT
trap 'trap "" INT TERM; exit 143' TERM

# Runs a command in a folder, whose `out` takes what it prints. A signal ends the wait for it, and then clean_up ends it.
run_in() {  # folder, command...
  (cd "$1" && exec "${@:2}") >"$1/out" 2>&1 &
  wait $!
}

cd "$scratch"
"$programs/zero_prepare" --out data "$root/README.md" "$root/CHANGELOG.md" "$root"/docs/*.md >prepare.out
cat >c.json <<JSON
{"model": {"family": "gpt2", "layers": 2, "width": 64, "heads": 2, "context": 64, "vocabulary": 256},
 "data": {"train": "data", "sequence_length": 32},
 "run": {"steps": 100, "seed": 7, "threads": 1, "device": "cpu", "log": "run.log"},
 "train_batch_size": $((4 * ranks)), "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
JSON
(umask 077; od -An -tx1 -N32 /dev/urandom | tr -d ' \n' >secret)
export ZERO_JOB_SECRET_FILE=$scratch/secret ZERO_TRAIN=$train ZERO_SRUN=--mpi=pmix
failures=0

hash_of() { sed -n 's/.*"state_hash":"\{0,1\}\([^",}]*\).*/\1/p' "$1" 2>/dev/null | tail -n 1 || true; }

# Prints one line of the table. Arguments: name, status, folder of the run and its output.
compare() {
  local hash verdict
  hash=$(hash_of "$3/run.log")
  if [[ $2 -ne 0 ]]; then
    verdict="FAILED with status $2: $(tail -q -n 3 "$3"/out* | tr '\n' ' ')"
  elif [[ $hash != "$expected" ]]; then
    verdict="DIFFERS: expected $expected"
  else
    verdict=$(grep -h -m 1 -o 'ranks talk.*' "$3"/out* || echo ok)
  fi
  [[ $2 -eq 0 && $hash == "$expected" ]] || failures=$((failures + 1))
  printf '%-14s %-18s %s\n' "$1" "${hash:-none}" "$verdict"
}

# Runs a command in a folder of its own on the two hosts. Arguments: name, arguments of two_hosts.sh.
on_hosts() {
  local name=$1 status=0
  shift
  mkdir -p "$name"
  ln -sfn "$scratch/data" "$name/data"
  run_in "$name" timeout --kill-after 10 300 "$root/bench/two_hosts.sh" --ranks "$ranks" "$@" || status=$?
  echo "$status" >"$name/status"
}

# Sets `expected` to the hash of a configuration's run on threads. Arguments: name, configuration.
expect() {
  mkdir "$1"
  ln -s "$scratch/data" "$1/data"
  run_in "$1" "$train" --config "$2" --local-ranks $((2 * ranks)) || fail "$(tail -n 3 "$1/out")"
  expected=$(hash_of "$1/run.log")
  printf '%-14s %-18s %s\n' "$1" "$expected" "one process, $((2 * ranks)) ranks"
}
expect threads "$scratch/c.json"

# What the scripts below share: steps that the log tells of, and a wait for the end of a job that was requeued.
cat >common.sh <<'SCRIPT'
steps() { grep -c '"step"' run.log 2>/dev/null; }
finish() {  # job, times that it was requeued
  while squeue --noheader --jobs "$1" | grep -q .; do sleep 0.5; done
  scontrol show job "$1" | grep -E 'JobState|Restarts'
  scontrol show job "$1" | grep -q 'JobState=COMPLETED' && scontrol show job "$1" | grep -q "Restarts=$2"
}
SCRIPT

# A job that is told to end in its midst, as the scheduler does shortly before its time is over, and is started again.
cat >requeue.sh <<SCRIPT
set -e
. $scratch/common.sh
job=\$(sbatch --parsable --ntasks-per-node $ranks --gpus-per-node 0 --output out.job \\
  $root/examples/cloud/train.sbatch --config $scratch/c.json --set run.checkpoint.folder=ck)
until [[ \$(steps) -ge 5 ]]; do sleep 0.1; done
scancel --signal TERM "\$job"
finish "\$job" 1
SCRIPT

# The batch script of docs/faults.md: a rank that is killed is started again in the allocation, then the job is told to
# end, as above.
cat >retry.sbatch <<SCRIPT
#!/bin/bash
#SBATCH --requeue --time=04:00:00 --signal=TERM@180 --open-mode=append
status=0
$root/launch/retry.sh --wait 1 -- srun --kill-on-bad-exit=1 $train --config $scratch/c.json --set run.checkpoint.folder=ck \\
  run.checkpoint.every_steps=4 'run.faults=[{"kind": "kill", "rank": 1, "step": 10, "phase": "backward"}]' || status=\$?
[[ \$status -ne 143 ]] || exec scontrol requeue "\$SLURM_JOB_ID"
exit "\$status"
SCRIPT
cat >retry_sbatch.sh <<SCRIPT
set -e
. $scratch/common.sh
export ZERO_ALLOW_FAULTS=1
job=\$(sbatch --parsable --nodes 2 --ntasks-per-node $ranks --output out.job $scratch/retry.sbatch)
until grep -q '"restart"' run.log 2>/dev/null && [[ \$(steps) -ge 15 ]]; do sleep 0.1; done
scancel --signal TERM "\$job"
finish "\$job" 1
grep '^retry: .*starting again' out.job
SCRIPT

# Slurm itself requeues a job that a fault ended, and holds one whose configuration is wrong.
cat >requeue_exit.sh <<SCRIPT
set -e
. $scratch/common.sh
export ZERO_ALLOW_FAULTS=1
submit() {
  sbatch --parsable --nodes 2 --ntasks-per-node $ranks --output out.job --open-mode append --requeue \\
    --wrap "exec srun --kill-on-bad-exit=1 $train --config $scratch/c.json --set run.checkpoint.folder=ck \$1"
}
job=\$(submit "run.checkpoint.every_steps=4 'run.faults=[{\"kind\": \"throw\", \"rank\": 1, \"step\": 10, \"phase\": \"backward\"},
  {\"kind\": \"kill\", \"rank\": 2, \"step\": 20, \"phase\": \"forward\"}]'")
finish "\$job" 2
job=\$(submit run.no_such_key=1)
until scontrol show job "\$job" | grep -q 'JobState=SPECIAL_EXIT'; do sleep 0.5; done
scancel "\$job"
SCRIPT

# One host begins, the other one's agent joins, and is told to end in the midst.
cat >elastic.sh <<SCRIPT
set -e
. $scratch/common.sh
agent="env TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 ${TORCHRUN:-torchrun} --no-python --nnodes 1:2 --nproc-per-node $ranks \\
  --max-restarts 10 --rdzv-backend c10d --rdzv-endpoint host1:29400 --rdzv-id elastic --rdzv-conf last_call_timeout=2 \\
  $train --config $scratch/elastic.json --set run.elastic=true run.checkpoint.folder=ck run.checkpoint.every_steps=20"
worlds() { grep -o ', [0-9]* rank(s) x' out | tr -dc '0-9\n' | uniq | tr '\n' ' '; }
\$agent &
first=\$!
until [[ \$(steps) -ge 5 ]]; do sleep 0.1; done
ssh host2 "echo \\\$\\\$ >agent; exec \$agent" &
until [[ \$(worlds) == "$ranks $((2 * ranks)) " ]]; do sleep 0.1; done
before=\$(steps)
until [[ \$(steps) -ge \$((before + 30)) ]]; do sleep 0.1; done
ssh host2 "kill -TERM \$(cat agent)"
wait \$first
echo "ranks: \$(worlds)"
[[ \$(worlds) == "$ranks $((2 * ranks)) $ranks " ]]
SCRIPT

# The agents meet on host2, and rank 0 is on host1 as a rule. As typed on a host: real ssh passes no variables on.
cat >torchrun_host2.sh <<SCRIPT
start="env TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 ${TORCHRUN:-torchrun} --no-python --nnodes 2 --nproc-per-node $ranks \
  --rdzv-backend c10d --rdzv-endpoint host2:29400 --rdzv-id host2 $train --config $scratch/c.json"
ssh host2 "\$start" &
\$start
status=\$?
wait \$! && exit \$status
SCRIPT

# A batch script on the two hosts. Arguments: name, options of sbatch, the script, options of zero_train.
on_slurm() {
  local name=$1
  shift
  on_hosts "$name" --launcher slurm "$rate" sbatch --wait --ntasks-per-node "$ranks" --gpus-per-node 0 \
    --output out.%a "$@" --config "$scratch/c.json"
}

for launcher in ${launchers//,/ }; do
  case $launcher in
    mpirun | srun | torchrun)
      on_hosts "$launcher" --launcher "$launcher" "$rate" "$train" --config "$scratch/c.json" ;;
    plain_srun)  # srun that knows no MPI: the ranks find each other themselves
      on_hosts plain_srun --launcher slurm "$rate" srun -K1 --nodes 2 --ntasks-per-node "$ranks" "$train" \
        --config "$scratch/c.json" ;;
    torchrun_host2) on_hosts torchrun_host2 --launcher none "$rate" bash "$scratch/torchrun_host2.sh" ;;
    sbatch) on_slurm sbatch "$root/examples/cloud/train.sbatch" ;;
    array)
      on_slurm array --array "1,2,$((2 * ranks))" "$root/examples/cloud/worlds.sbatch"
      for world in 1 2 $((2 * ranks)); do
        cp -f "array/out.$world" "array/world_$world/out" 2>/dev/null || true
        compare "array/$world" "$(cat array/status)" "array/world_$world"
      done
      continue
      ;;
    requeue | retry_sbatch) on_hosts "$launcher" --launcher slurm "$rate" bash "$scratch/$launcher.sh" ;;
    requeue_exit)
      SLURM_LINES=$'RequeueExit=1,134-143,253\nRequeueExitHold=78' \
        on_hosts requeue_exit --launcher slurm "$rate" bash "$scratch/requeue_exit.sh"
      ;;
    elastic)
      sed "s/\"steps\": 100/\"steps\": 1000/; s/\"train_batch_size\": [0-9]*/\"train_batch_size\": $((16 * ranks))/" c.json >elastic.json
      of_threads=$expected
      expect elastic_threads "$scratch/elastic.json"
      on_hosts elastic --launcher none "$rate" bash "$scratch/elastic.sh"
      compare elastic "$(cat elastic/status)" elastic
      expected=$of_threads
      continue
      ;;
    *) fail "--launchers: \"$launcher\" is none of those that bench/launchers.sh --help lists" ;;
  esac
  compare "$launcher" "$(cat "$launcher/status")" "$launcher"
done
[[ $failures -eq 0 ]] || fail "$failures runs failed or differ"
