#!/bin/bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs a command as ranks on two "hosts": network namespaces joined by a link of a given rate, one core each.
#
#   bench/two_hosts.sh [--ranks N] RATE COMMAND...    as root; RATE as tc has it: 1gbit, 400mbit, ...; N ranks a host (1)
#   bench/two_hosts.sh 1gbit build/bin/zero_bench overlap
#   bench/two_hosts.sh --ranks 4 1gbit build/bin/zero_bench collectives --bytes 16777216
#
# Between the hosts ranks talk TCP through a veth pair, each end of which sends at RATE at most (htb). Namespaces, link and processes
# are gone when it ends, after an error or a signal too.
set -euo pipefail
case ${1-} in -h | --help) sed -n '5,12s/^# \{0,1\}//p' "$0"; exit 0 ;; esac

fail() {
  echo "two_hosts: $1" >&2
  exit 1
}

ranks=1
if [[ ${1-} == --ranks && $# -ge 2 ]]; then
  ranks=$2
  shift 2
fi
[[ $# -ge 2 ]] || fail "usage: bench/two_hosts.sh [--ranks N] RATE COMMAND..."
[[ $ranks =~ ^[1-9][0-9]*$ ]] || fail "--ranks \"$ranks\" is not a number of ranks a host"
rate=$1
shift
[[ $rate =~ ^[0-9]+(kbit|mbit|gbit)$ ]] || fail "rate \"$rate\" is not of the form 400mbit or 1gbit"
[[ $(id -u) -eq 0 ]] || fail "network namespaces need root; run it as root"
for tool in ip tc mpirun taskset; do
  command -v "$tool" >/dev/null || fail "$tool is missing; install iproute2, util-linux and openmpi-bin"
done
mapfile -t cores < <(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' | sed 's/-/ /' | while read -r first last; do
  seq "$first" "${last:-$first}"
done)
[[ ${#cores[@]} -ge 2 ]] || fail "two hosts need two cores, this process may use ${#cores[@]}"

id=zero$$
scratch=$(mktemp -d)
hosts=("${id}a" "${id}b")
clean_up() {
  for host in "${hosts[@]}"; do
    ip netns pids "$host" 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
    ip netns delete "$host" 2>/dev/null || true
  done
  rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

for host in "${hosts[@]}"; do
  ip netns add "$host" 2>"$scratch/error" ||
    fail "cannot make a network namespace: $(cat "$scratch/error"); it needs CAP_SYS_ADMIN and CAP_NET_ADMIN"
  ip -n "$host" link set lo up
done
ip link add "eth0" netns "${hosts[0]}" type veth peer name "eth0" netns "${hosts[1]}" 2>"$scratch/error" ||
  fail "cannot make a veth pair: $(cat "$scratch/error")"
for i in 0 1; do
  ip -n "${hosts[i]}" address add "10.77.0.$((i + 1))/24" dev eth0
  ip -n "${hosts[i]}" link set eth0 up
  tc -n "${hosts[i]}" qdisc add dev eth0 root handle 1: htb default 1 2>"$scratch/error" ||
    fail "cannot limit the rate: $(cat "$scratch/error")"
  tc -n "${hosts[i]}" class add dev eth0 parent 1: classid 1:1 htb rate "$rate" burst 64k cburst 64k quantum 60000
done

# mpirun reaches a host by its agent: the address names the namespace; the namespace has its core. The second host has a
# name of its own, because MPI takes ranks for neighbours by the names of their hosts.
cat >"$scratch/agent" <<AGENT
#!/bin/bash
host=\$1
shift
case \$host in
  10.77.0.1) exec ip netns exec ${hosts[0]} taskset -c ${cores[0]} bash -c "\$*" ;;
  10.77.0.2) exec ip netns exec ${hosts[1]} unshare --uts taskset -c ${cores[1]} \
    bash -c "hostname ${hosts[1]} && \$*" ;;
esac
echo "two_hosts: no host \$host" >&2
exit 1
AGENT
chmod +x "$scratch/agent"

# mpirun itself runs on the first host.
ip netns exec "${hosts[0]}" taskset -c "${cores[0]}" mpirun --allow-run-as-root \
  --host "10.77.0.1:$ranks,10.77.0.2:$ranks" -np $((2 * ranks)) --bind-to none \
  --mca plm_rsh_agent "$scratch/agent" --mca plm_rsh_no_tree_spawn 1 \
  --mca oob_tcp_if_include eth0 --mca btl tcp,vader,self --mca btl_tcp_if_include eth0 --mca pml ob1 \
  "$@" &
wait $!  # a signal ends a wait, and then clean_up runs
