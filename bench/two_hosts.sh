#!/bin/bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs a command on two "hosts", host1 and host2: namespaces joined by a link of a given rate, with process numbers,
# /dev/shm and a core of their own.
#
#   bench/two_hosts.sh [--ranks N] [--launcher L] RATE COMMAND...     as root; RATE as tc has it: 1gbit, 400mbit, ...
#   bench/two_hosts.sh 1gbit build/bin/zero_bench overlap
#   bench/two_hosts.sh --ranks 4 1gbit build/bin/zero_bench collectives --bytes 16777216
#   bench/two_hosts.sh --ranks 4 --launcher srun 1gbit build/bin/zero_train --config c.json
#
#   --ranks N      ranks a host (1)
#   --launcher L   mpirun (as if it were not given) | srun | torchrun: COMMAND is each rank's.
#                  none | slurm: COMMAND runs once, on host1, as in a shell of a user who has rented two hosts: `ssh host2`
#                  works, HOSTFILE names a file for mpirun --hostfile; slurm: srun and sbatch work too
#
# Between the hosts ranks talk TCP through a veth pair, each end of which sends at RATE at most (htb). The file system is
# one: every folder is a shared one. srun needs Debian's slurmctld, slurmd, slurm-client and munge, torchrun PyTorch
# (TORCHRUN names the program). Namespaces, link and processes are gone when it ends, after an error or a signal too.
set -euo pipefail
here=$(realpath "$(dirname "$0")")
case ${1-} in -h | --help) sed -n '5,23s/^# \{0,1\}//p' "$0"; exit 0 ;; esac

fail() {
  echo "two_hosts: $1" >&2
  exit 1
}

. "$here/namespaces.sh"

ranks=1 launcher=mpirun
while [[ ${1-} == --* && $# -ge 2 ]]; do
  case $1 in
    --ranks) ranks=$2 ;;
    --launcher) launcher=$2 ;;
    *) fail "unknown option \"$1\"; see bench/two_hosts.sh --help" ;;
  esac
  shift 2
done
[[ $# -ge 2 ]] || fail "usage: bench/two_hosts.sh [--ranks N] [--launcher L] RATE COMMAND..."
[[ $ranks =~ ^[1-9][0-9]*$ ]] || fail "--ranks \"$ranks\" is not a number of ranks a host"
rate=$1
shift
[[ $rate =~ ^[0-9]+(kbit|mbit|gbit)$ ]] || fail "rate \"$rate\" is not of the form 400mbit or 1gbit"
torchrun=${TORCHRUN:-torchrun}
case $launcher in
  mpirun) needed=(mpirun) packages=openmpi-bin ;;
  srun | slurm) needed=(munged slurmctld slurmd srun) packages="munge, slurmctld, slurmd and slurm-client" ;;
  torchrun) needed=("$torchrun") packages="PyTorch (pip install torch), or set TORCHRUN" ;;
  none) needed=() packages="" ;;
  *) fail "--launcher \"$launcher\" is not one of mpirun, srun, torchrun, slurm, none" ;;
esac
for tool in tc taskset; do
  command -v "$tool" >/dev/null || fail "$tool is missing; install iproute2 and util-linux"
done
for tool in "${needed[@]}"; do
  command -v "$tool" >/dev/null || fail "$tool is missing; install $packages"
done
mapfile -t cores < <(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' | sed 's/-/ /' | while read -r first last; do
  seq "$first" "${last:-$first}"
done)
[[ ${#cores[@]} -ge 2 ]] || fail "two hosts need two cores, this process may use ${#cores[@]}"

scratch=$(mktemp -d)
clean_up() {
  local each
  for each in "${server-}" "${setup-}"; do
    { kill "$each" && wait "$each"; } 2>/dev/null || true  # the shell tells there of what was killed
  done
  end_hosts
  rm -rf "$scratch"
}
trap clean_up EXIT
trap 'trap "" INT TERM; exit 130' INT  # once: a second one would end clean_up
trap 'trap "" INT TERM; exit 143' TERM

make_hosts "$scratch"
for space in "${spaces[@]}"; do
  tc -n "$space" qdisc add dev eth0 root handle 1: htb default 1 2>"$scratch/error" ||
    fail "cannot limit the rate: $(cat "$scratch/error")"
  tc -n "$space" class add dev eth0 parent 1: classid 1:1 htb rate "$rate" burst 64k cburst 64k quantum 60000
done

# A host has its core.
on_host() {  # 1 or 2, command...
  become_on "$1" taskset -c "${cores[$1 - 1]}" "${@:2}"
}

# `ssh HOST COMMAND`, for mpirun and for the user, gives the command no input; options of the real one are passed over. A
# process cannot enter another host's process numbers: `ssh` calls this script, which can, and is answered through pipes.
for i in 1 2; do echo "host$i slots=$ranks"; done >"$scratch/hostfile"
mkdir "$scratch/bin"
cat >"$scratch/bin/ssh" <<'SSH'
#!/bin/bash
while [[ ${1-} == -* ]]; do
  case $1 in -o | -p | -l | -i | -F) shift ;; esac
  shift
done
scratch=${0%/bin/ssh}
[[ ${1:?usage: ssh HOST COMMAND} =~ ^(host|10\.77\.0\.)([12])$ ]] ||
  { echo "ssh: Could not resolve hostname $1: the hosts are host1 and host2" >&2; exit 255; }
shift
call=$(mktemp -d "$scratch/call.XXXXXX")
mkfifo "$call/out" "$call/err"
{ declare -px; printf 'cd %q; bash -c %q; echo $? >%q' "$PWD" "$*" "$call/status"; } >"$call/command"
echo "${BASH_REMATCH[2]} $call" >"$scratch/calls"
cat "$call/err" >&2 &
cat "$call/out"
wait
exit "$(cat "$call/status" 2>/dev/null || echo 255)"
SSH
chmod +x "$scratch/bin/ssh"
mkfifo "$scratch/calls"
while read -r number call; do
  on_host "$number" bash "$call/command" </dev/null >"$call/out" 2>"$call/err" &
done <>"$scratch/calls" &
server=$!
export PATH="$scratch/bin:$PATH" HOSTFILE="$scratch/hostfile"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

if [[ $launcher == srun || $launcher == slurm ]]; then
  "$here/slurm_hosts.sh" "$scratch" host1 host2 &
  setup=$!
  wait "$setup"
  export SLURM_CONF="$scratch/slurm.conf"
fi
case $launcher in
  mpirun)
    start=(mpirun --hostfile "$HOSTFILE" -np $((2 * ranks)) --bind-to none --mca btl "tcp,vader,self"
      --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --mca pml ob1) ;;
  srun) start=(srun --mpi=pmix --kill-on-bad-exit=1 --nodes 2 --ntasks-per-node "$ranks") ;;
  torchrun)
    if [[ -z ${ZERO_JOB_SECRET-}${ZERO_JOB_SECRET_FILE-} ]]; then
      ZERO_JOB_SECRET=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')
      export ZERO_JOB_SECRET
    fi
    # The ranks meet at a free port of rank 0's host, whichever host the endpoint is on.
    start=(env TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 "$torchrun" --no-python --nnodes 2 --nproc-per-node "$ranks" --rdzv-backend c10d
      --rdzv-endpoint host1:29400 --rdzv-id "${spaces[0]}") ;;
  none | slurm) start=() ;;
esac
others=()
if [[ $launcher == torchrun ]]; then
  on_host 2 "${start[@]}" "$@" &
  others=($!)
fi
# A signal ends a wait, and then clean_up runs.
on_host 1 "${start[@]}" "$@" <&0 &
wait $!
[[ ${#others[@]} -eq 0 ]] || wait "${others[@]}"
