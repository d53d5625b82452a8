#!/bin/bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Two "hosts" of this machine, host1 and host2, for scripts that source this file: network namespaces joined by a veth
# pair, 10.77.0.1 and 10.77.0.2, with a name (MPI takes ranks for neighbours by the names of their hosts), process
# numbers and a /dev/shm of their own. As root. The caller has `fail MESSAGE`, and calls `end_hosts` when it ends.

# Makes them. Sets `spaces`, the names of their network namespaces, and `hosts_file`, in FOLDER.
make_hosts() {  # folder
  [[ $(id -u) -eq 0 ]] || fail "network namespaces need root; run it as root"
  local tool i
  for tool in ip unshare nsenter; do
    command -v "$tool" >/dev/null || fail "$tool is missing; install iproute2 and util-linux"
  done
  spaces=("zero$$a" "zero$$b") hosts_file=$1/hosts
  printf '127.0.0.1 localhost\n10.77.0.1 host1\n10.77.0.2 host2\n' >"$hosts_file"
  for i in 0 1; do
    ip netns add "${spaces[i]}" 2>"$1/error" ||
      fail "cannot make a network namespace: $(cat "$1/error"); it needs CAP_SYS_ADMIN and CAP_NET_ADMIN"
    ip -n "${spaces[i]}" link set lo up
  done
  ip link add eth0 netns "${spaces[0]}" type veth peer name eth0 netns "${spaces[1]}" 2>"$1/error" ||
    fail "cannot make a veth pair: $(cat "$1/error")"
  for i in 0 1; do
    ip -n "${spaces[i]}" address add "10.77.0.$((i + 1))/24" dev eth0
    ip -n "${spaces[i]}" link set eth0 up
    start_host $((i + 1))
  done
}

# Starts the first process of a host, a shell that collects orphans, and puts its number into `inits`. All processes of
# the host end with it; then the host can be started again.
start_host() {  # 1 or 2
  local init
  mkdir -p "$hosts_file.groups"
  # Not by "ip netns exec", whose /sys has no control groups.
  # shellcheck disable=SC2016
  read -r init < <(exec nsenter --net="/run/netns/${spaces[$1 - 1]}" unshare --uts --mount --pid --fork --kill-child bash -ec '
    read -r number _ </proc/self/stat  # as the caller counts: its /proc is still there
    hostname "$1"
    mount --bind "$2" /etc/hosts
    mount --rbind /sys/fs/cgroup "$2.groups"
    mount -t sysfs sysfs /sys
    mount --rbind "$2.groups" /sys/fs/cgroup
    umount --lazy "$2.groups"
    mount -t proc proc /proc
    mount -t tmpfs tmpfs /dev/shm
    echo "$number"
    sleep infinity &
    wait' bash "host$1" "$hosts_file" </dev/null 2>"$hosts_file.error") ||
    fail "cannot make a host: $(cat "$hosts_file.error")"
  inits[$1 - 1]=$init
}

# Ends their processes, and removes them.
end_hosts() {
  local space
  for space in "${spaces[@]-}"; do
    ip netns pids "$space" 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
    ip netns delete "$space" 2>/dev/null || true
  done
}

# Becomes a command on a host, in this folder. The command is told to end (SIGTERM) if this process is killed.
become_on() {  # 1 or 2, command...
  exec nsenter --target "${inits[$1 - 1]}" --net --uts --mount --pid \
    setpriv --pdeathsig TERM env --chdir "$PWD" "${@:2}"
}
