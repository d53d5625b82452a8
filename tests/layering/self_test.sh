#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# check.sh passes a good sample tree, and fails it for each single breach, naming file and line.
set -euo pipefail
folder=$(dirname "$(readlink -f "$0")")
check=$folder/check.sh
source "$folder/refusals.sh"
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

# put FILE LINE...: a source file with the SPDX lines and the given ones.
put() {
  local file=$tree/$1
  shift
  mkdir -p "$(dirname "$file")"
  printf '%s\n' "// SPDX-FileCopyrightText: The ZeRO engine authors" \
    "// SPDX-License-Identifier: Apache-2.0" "$@" >"$file"
}

good_tree() {
  rm -rf "${tree:?}"/*
  put base/error.h '#include <string>'
  put device/cuda/stream.cpp '#include <cuda_runtime.h>' '#include "base/error.h"'
  put tiers/file.h '#include "files/queue.h"' '#include "device/view.h"'
  put partition/layout.h '#include "base/error.h"'
  put collectives/nccl/nccl.cpp '#include <nccl.h>' '#include <cuda_runtime.h>'
  put collectives/mpi/mpi.cpp '#include <mpi.h>' '#include "device/view.h"'
  put optim/adam.h '#include "device/view.h"' '#include "partition/layout.h"'
  put engine/engine.h '#include "collectives/communicator.h"' '#include "optim/adam.h"' '#include "tiers/file.h"'
  put model/gpt2.h '#include "engine/engine.h"' '#include "engine/lease.h"'
  put checkpoint/save.h '#include "engine/engine.h"' '#include "weights/files.h"'
  put launch/store.cpp '#include <boost/asio.hpp>' '#include "checkpoint/save.h"'
  put tests/test.cpp '#include "engine/core.h"'
}

good_tree
bash "$check" "$tree"

put base/up.h '#include "device/view.h"'
refuses 'base/up.h:3: base includes device/view.h; it may include: no other room'
put device/up.h '' '#include "partition/layout.h"'
refuses 'device/up.h:4: device includes partition/layout.h'
put tiers/up.h '#include "partition/layout.h"'
refuses 'tiers/up.h:3: tiers includes partition/layout.h; it may include: base files device'
put partition/up.h '#include "engine/engine.h"'
refuses 'partition/up.h:3: partition includes engine/engine.h'
put collectives/up.h '#include "optim/adam.h"'
refuses 'collectives/up.h:3: collectives includes optim/adam.h'
put optim/cpu/up.cpp '  #  include <collectives/communicator.h>'
refuses 'optim/cpu/up.cpp:3: optim includes collectives/communicator.h'
put engine/up.h '#include "model/gpt2.h"'
refuses 'engine/up.h:3: engine includes model/gpt2.h'
put model/up.h '#include "checkpoint/save.h"'
refuses 'model/up.h:3: model includes checkpoint/save.h'
put model/inside.h '#include "engine/core.h"'
refuses 'model/inside.h:3: model includes engine/core.h; of the engine it may include'
put checkpoint/up.h '#include "launch/options.h"'
refuses 'checkpoint/up.h:3: checkpoint includes launch/options.h'
put engine/test.h '#include "tests/case.h"'
refuses 'engine/test.h:3: engine includes tests/case.h; only tests include test support'
put bench/bench.cpp '#include "tests/case.h"'
refuses 'bench/bench.cpp:3: bench includes tests/case.h; only tests include test support'
put engine/bench.h '#include "bench/program.h"'
refuses 'engine/bench.h:3: engine includes bench/program.h; rooms do not know bench'
put device/cpu/stream.cpp '#include <cuda_runtime.h>'
refuses 'device/cpu/stream.cpp:3: includes cuda_runtime.h; only folders named cuda'
put collectives/local/nccl.cpp '#include <nccl.h>'
refuses 'collectives/local/nccl.cpp:3: includes nccl.h; only collectives/nccl/'
put tests/mpi.cpp '#include <mpi.h>'
refuses 'tests/mpi.cpp:3: includes mpi.h; only collectives/mpi/'
put engine/socket.cpp '#include <boost/asio/ip/tcp.hpp>'
refuses 'engine/socket.cpp:3: includes boost/asio/ip/tcp.hpp; only launch/'
put tests/http.cpp '#include <boost/beast.hpp>'
refuses 'tests/http.cpp:3: includes boost/beast.hpp; only launch/'
put collectives/digest.cpp '#include <openssl/evp.h>'
refuses 'collectives/digest.cpp:3: includes openssl/evp.h; only launch/'
put checkpoint/saver.cpp '#include <liburing.h>'
refuses 'checkpoint/saver.cpp:3: includes liburing.h; only files/'
put optim/one.h '#include "optim/two.h"'
put optim/two.cpp '#include "optim/three-inl.h"'
put optim/three.inc '#include "optim/one.h"'
refuses 'optim/one.h:3: includes lead in a circle through optim/three, optim/two, optim/one;'
put tests/one.h '#include "tests/two.h"'
put tests/two.cpp '#include "tests/one.h"'
bash "$check" "$tree" >/dev/null || { echo "a circle of tests is refused"; failures=$((failures + 1)); }
mapfile -t heavy < <(seq -f '#include "base/part_%g.h"' 24)
put base/whole.h "${heavy[@]}"
put launch/config/run.h '#include "base/whole.h"'
bash "$check" "$tree" >/dev/null || { echo "a header with 25 others is refused"; failures=$((failures + 1)); }
put launch/config/run.h '#include "base/whole.h"' '#include "base/error.h"'
refuses 'launch/config/run.h:1: drags 26 headers along; at most 25'
mapfile -t heavy < <(seq -f '#include "base/part_%g.h"' 71)
put base/whole.h "${heavy[@]}"
refuses 'base/whole.h:1: drags 71 headers along; at most 70'
put base/trie.h 'namespace zero {' 'class Unit {' '};' '}  // namespace zero'
put engine/unit.cpp 'namespace zero {' 'namespace {' 'struct Unit final : Base {' '};' '}  // namespace' '}  // namespace zero'
refuses 'engine/unit.cpp:5: zero::Unit is a type of base/trie.h too; give one of them another name'
put base/trie.h 'namespace zero {' 'class Unit {' '};' '}  // namespace zero'
put engine/unit.h 'namespace zero {' 'class Unit;' 'enum class Other : int {' '};' '}  // namespace zero'
put engine/cuda/unit.cpp 'namespace zero::cuda {' 'class Unit {' '};' '}  // namespace zero::cuda'
put tests/unit.cpp 'namespace zero {' 'struct Unit {' '};' '}  // namespace zero'
bash "$check" "$tree" >/dev/null || { echo "types of other namespaces and declarations are refused"; failures=$((failures + 1)); }
good_tree
printf '#include <string>\n' >"$tree/base/bare.cpp"
refuses 'base/bare.cpp:1: does not begin with the two SPDX lines'
printf '#!/bin/sh\n' >"$tree/tests/run.sh"
refuses 'tests/run.sh:1: does not begin with the two SPDX lines'
mapfile -t long < <(seq 399)
put optim/long.cpp "${long[@]}"
refuses 'optim/long.cpp:401: has 401 lines; at most 400'

rm -rf "${tree:?}"/*
status=0
bash "$check" "$tree" >/dev/null || status=$?
[[ $status -eq 2 ]] || { echo "an empty tree: status $status, expected 2"; failures=$((failures + 1)); }

((failures == 0)) || exit 1
echo "check.sh refuses every breach"
