#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# documents.sh passes a good sample tree, and fails it for each single breach, naming file and line.
set -euo pipefail
folder=$(dirname "$(readlink -f "$0")")
check=$folder/documents.sh
source "$folder/refusals.sh"
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

good_tree() {
  rm -rf "${tree:?}"/*
  mkdir -p "$tree"/{docs,engine,launch/config}
  echo '.path = "run.graphs",' >"$tree/launch/config/options.cpp"
  touch "$tree/engine/engine.h"
  printf '%s\n' '# Read me' 'The class in `engine/engine.h`, a new `model/NAME.cpp`, the key `run.graphs`;' \
    '[how](docs/how.md#what-a-step-does), build/engine/libengine.a and https://example.org/engine/none.' >"$tree/README.md"
  printf '%s\n' '# How' '## What a step does' '[back](../README.md), [up](#how); in engine/.' >"$tree/docs/how.md"
}

good_tree
bash "$check" "$tree"

echo 'See `engine/lease.h`.' >>"$tree/README.md"
refuses 'README.md:4: names engine/lease.h, which is not in the tree'
echo 'engine/step.cpp' >>"$tree/docs/how.md"
refuses 'docs/how.md:4: names engine/step.cpp'
echo 'The key `run.graph`.' >>"$tree/README.md"
refuses 'README.md:4: names the key run.graph, which is in no table'
echo '[gone](gone.md)' >>"$tree/docs/how.md"
refuses 'docs/how.md:4: links to gone.md, which is not in the tree'
echo '[gone](how.md#what-a-step-did)' >>"$tree/docs/how.md"
refuses 'docs/how.md:4: links to how.md#what-a-step-did; how.md has no such heading'
printf 'Ψ%.0s' {1..120} >>"$tree/README.md"
bash "$check" "$tree" >/dev/null || { echo "120 characters are refused"; failures=$((failures + 1)); }
printf 'x%.0s' {1..121} >>"$tree/docs/how.md"
refuses 'docs/how.md:4: is longer than 120 characters'
seq 118 >>"$tree/README.md"
refuses 'README.md:121: has 121 lines; at most 120'
seq 198 >>"$tree/docs/how.md"
refuses 'docs/how.md:201: has 201 lines; at most 200'

rm -rf "${tree:?}"/*
status=0
bash "$check" "$tree" >/dev/null || status=$?
[[ $status -eq 2 ]] || { echo "an empty tree: status $status, expected 2"; failures=$((failures + 1)); }

((failures == 0)) || exit 1
echo "documents.sh refuses every breach"
