#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# resources.sh CUOBJDUMP LIBRARY...: what the kernels of libraries take, one line each: architecture,
# registers, bytes of static shared memory, name. Ends with 1 where one keeps values in local memory
# (a stack frame or spilled registers), which is device memory.
set -euo pipefail
cuobjdump=${1:?usage: resources.sh CUOBJDUMP LIBRARY...}
shift
for library in "$@"; do
  "$cuobjdump" -res-usage "$library" 2>/dev/null
done | awk '
  /^arch = / { arch = $3 }
  / Function / { name = $2; sub(/:$/, "", name) }
  / REG:/ {
    split("", use)
    for (i = 1; i <= NF; ++i) { split($i, pair, ":"); use[pair[1]] = pair[2] }
    spills = (use["STACK"] + use["LOCAL"] > 0)
    printf "%-8s %3d registers %6d bytes shared  %s%s\n", arch, use["REG"], use["SHARED"], name, \
           (spills ? "  LOCAL MEMORY" : "")
    ++kernels
    local += spills
  }
  END {
    printf "%d kernels, %d of them with local memory\n", kernels, local
    exit kernels == 0 || local > 0
  }' | c++filt -p
