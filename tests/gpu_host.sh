# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What tests/gpu.sh, which reads this file, needs of a host: programs, libraries, versions. Functions as those of
# gpu_checks.sh.

present() { command -v "$1" >/dev/null; }  # program

# What the checks need of the host before anything else.
host_can_check() {
  if ! present python3; then
    echo "python3 is not on this host; it writes the runs' inputs and reads their logs: install it"
    return 1
  fi
  present nvidia-smi || { echo "nvidia-smi is not on this host; NVIDIA's driver brings it"; return 1; }
  nvidia-smi -L >"$work/gpus" 2>&1 && return
  echo "no GPU: $(head -n 1 "$work/gpus"); these checks need one"
  return 1
}

unpack() {  # archive, folder: with Python where the host has no xz
  if present xz && tar -C "$2" -xJf "$1"; then return 0; fi
  if present python3 &&
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$1" "$2"; then
    return 0
  fi
  local reason="is it whole?"
  if ! present xz && ! present python3; then reason="the host has neither xz nor python3: install one of them"
  elif ! present xz; then reason="the host has no xz, and its python3 could not either: install xz"
  elif ! present python3; then reason="tar could not with xz, and the host has no python3: install it, or is the archive whole?"
  fi
  echo "$1 cannot be unpacked: $reason"
  return 1
}

host_glibc() { getconf GNU_LIBC_VERSION 2>/dev/null | awk '{print $2}'; }

# Whether version $1 is at least $2.
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | tail -n 1)" = "$1" ]; }

needed() { awk -v name="$1" '$1 == name {print $2}' "$here/needs"; }  # name in the pack's file

# The newest version of a libstdc++: "3.4.30".
version_of_libstdcxx() {  # file
  grep -aoE 'GLIBCXX_3\.4\.[0-9]+' "$1" 2>/dev/null | sort -Vu | tail -n 1 | sed 's/.*_//'
}

# The libraries that the host's loader knows; not every user has the folder of ldconfig in PATH.
cached_libraries() { PATH=$PATH:/sbin:/usr/sbin ldconfig -p; }

# Whether the host runs what was packed; takes the packed libraries of GCC where its own are older.
host_is_new_enough() {
  [ -f "$here/needs" ] || { echo "not packed: built on this host"; return 0; }
  local glibc own
  glibc=$(host_glibc)
  if ! at_least "${glibc:-0}" "$(needed glibc)"; then
    echo "the programs need glibc $(needed glibc), this host has ${glibc:-none}; pack on an older system"
    return 1
  fi
  own=$(version_of_libstdcxx "$(cached_libraries 2>/dev/null | awk '/libstdc\+\+\.so\.6 .*x86-64/ {print $NF; exit}')")
  if at_least "${own:-0}" "$(needed libstdc++)"; then
    echo "glibc $glibc, libstdc++ $own: the host's"
    return 0
  fi
  if ! at_least "$glibc" "$(needed lib-gcc)"; then
    echo "the programs need libstdc++ $(needed libstdc++), this host has ${own:-none}; the packed one needs" \
      "glibc $(needed lib-gcc), this host has $glibc; install a newer libstdc++6, or pack on an older system"
    return 1
  fi
  LD_LIBRARY_PATH=$packed/lib-gcc:$LD_LIBRARY_PATH
  echo "glibc $glibc, libstdc++ of the pack: the host's is ${own:-none}"
}

# Puts what Python's packages bring before CUDA's own, in the order in which Python finds them: it is the
# same in every run.
find_vendor_libraries() {
  local folder folders
  folders=$(python3 - 2>/dev/null <<'PYTHON'
import glob, site, sys, os
for root in dict.fromkeys([*sys.path, *site.getsitepackages(), site.getusersitepackages()]):
    for folder in sorted(glob.glob(os.path.join(root, "nvidia", "*", "lib"))) if root else []:
        print(folder)
PYTHON
  )
  for folder in $folders /usr/local/cuda/lib64; do
    [ -d "$folder" ] && LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
  done
  if [ -d "$packed/lib" ]; then LD_LIBRARY_PATH=$packed/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}; fi
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
}

versions_and_libraries() {
  local absent
  host_is_new_enough || return 1
  nvidia-smi -L
  absent=$(ldd "$bin"/* 2>&1 | awk '/not found/ {print $1, $2, $3, $4}' | sort -u | tr '\n' ';')
  if [ -n "$absent" ]; then
    echo "not found: $absent"
    return 1
  fi
  "$bin/zero_train" --version | tee "$work/version.out" || return 1
  grep -qE '^cuBLASLt: [0-9]' "$work/version.out"  # loaded when it is needed: ldd does not know
}

# All tests of a program; one that is skipped says that the GPU cannot be used.
contract_tests() {  # program, arguments...
  "$@" --gtest_brief=1 | tee "$work/tests.out" || return 1
  if grep -F '[  SKIPPED ]' "$work/tests.out"; then return 1; fi
}
