#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the engine on files as people have them, and on what public reports of other engines describe.
#
#   tests/wild/run.sh [arguments of ctest]
set -euo pipefail
case ${1-} in -h | --help) sed -n '5,7s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
exec "$(dirname "$0")/../run.sh" -L wild "$@"
