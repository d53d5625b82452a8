#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# The tests of which .ci/run takes seeded samples, whole: 200 cuts of a job of 8 ranks, every crash of a save, a fault in
# every call of one, 10,000 corruptions of a checkpoint. Builds Release into build/; takes an hour or two on 2 cores. The results belong into
# bench/results.md, with their date.
#
#   tests/long.sh [--gtest_filter=PATTERN]
#
# Or 100,000 connections of strangers and faulty clients, drawn from a printed seed, to the store of a job that works on. Builds with
# AddressSanitizer into build-asan/:
#
#   tests/long.sh --strangers
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1-} in -h | --help) sed -n '5,15s/^# \{0,1\}//p' tests/long.sh; exit 0 ;; esac

launch/install_packages.sh run test
if [ "${1-}" = --strangers ]; then
  build=build-asan
  programs=(launch_store_test)
  filter=--gtest_filter=*StoreStrangers.*
  cmake --preset asan -DZERO_TESTS=ON
else
  # What reads ZERO_LONG_TESTS.
  build=build
  programs=(checkpoint_folder_test checkpoint_run_test launch_program_test)
  filter=${1---gtest_filter=Crash*:Corruption*:CheckpointFaults.AnyCall*:Resume.CutAnywhere*}
  cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DZERO_WERROR=ON -DZERO_TESTS=ON
fi
cmake --build "$build" --parallel "$(nproc)" --target "${programs[@]}"

export ZERO_LONG_TESTS=1
failures=0
echo "$(date -u +'%Y-%m-%d %H:%M UTC'), $(nproc) cores"
for program in "${programs[@]}"; do
  began=$SECONDS
  "$build/bin/$program" "$filter" || failures=$((failures + 1))
  echo "--- $program: $((SECONDS - began)) s"
done
exit $((failures > 0))
