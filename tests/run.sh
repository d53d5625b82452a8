#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs what is missing, builds Release into build/, runs every test, ends with ctest's summary.
#
#   tests/run.sh [arguments of ctest]      for example: tests/run.sh -R Theorem
#
# Without arguments the cases of a program run in eight parts, of which ctest tells; with them, one by one by name.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1-} in -h | --help) sed -n '5,9s/^# \{0,1\}//p' tests/run.sh; exit 0 ;; esac

cores=$(nproc)
launch/install_packages.sh run test
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DZERO_WERROR=ON -DZERO_TESTS=ON
cmake --build build --parallel "$cores"
[ $# -gt 0 ] || export ZERO_TEST_PARTS=8
# Many tests wait more than they work: two a core.
exec ctest --test-dir build --parallel $((2 * cores)) --output-on-failure "$@"
