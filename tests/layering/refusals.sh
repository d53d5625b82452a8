# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# What the self tests of this folder share; read by them, which set `check` and `tree` and define good_tree.

failures=0
# refuses WHAT: the sample tree must fail with a line that contains WHAT.
refuses() {
  local output status=0
  output=$(bash "$check" "$tree") || status=$?
  if [[ $status -ne 1 || $output != *"$1"* ]]; then
    echo "expected a refusal with: $1"
    echo "status $status, output: $output"
    failures=$((failures + 1))
  fi
  good_tree
}
