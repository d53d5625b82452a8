#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# check.sh ROOT: the house rules that a grep can hold. Prints one line per breach, "file:line: what;
# what is allowed", and ends with 1 if there is any. There is no exclude list.
#   - a room includes only rooms below it; only tests include tests
#   - foreign interfaces stay where they belong: CUDA, NCCL, MPI, Boost.Asio, Boost.Beast, OpenSSL and io_uring
#   - no circles: what a component (a source with its headers) includes does not lead back to it
#   - a header drags at most 70 others along, one of launch/config or launch/generate at most 25
#   - a type of a header has its name to itself in its namespace, unnamed ones in it too
#   - every source file begins with the two SPDX lines and has at most 400 lines
set -euo pipefail
cd "${1:?usage: check.sh ROOT}"

rooms=(base files device tiers partition architecture collectives ops weights text inference optim engine model checkpoint launch)
others=(bench cmake examples tests .ci)

# What each room may include beside itself.
declare -A below=(
  [base]=""
  [files]="base"
  [device]="base"
  [tiers]="base files device"
  [partition]="base device"
  [architecture]="base partition"
  [collectives]="base files device"
  [ops]="base device architecture"
  [weights]="base files device partition architecture ops"
  [text]="base files architecture weights"
  [inference]="base files device tiers partition architecture collectives ops weights"
  [optim]="base device partition"
  [engine]="base files device tiers partition collectives optim"
  [model]="base device tiers partition architecture collectives ops engine"
  [checkpoint]="base files device tiers partition architecture collectives weights engine"
  [launch]="base files device tiers partition architecture collectives ops weights text inference optim engine model checkpoint"
)
# The engine as custom trainers and the built-in models see it.
engine_public="engine/engine.h engine/engine_options.h engine/engine_states.h engine/lease.h engine/schedule.h engine/step_report.h"

breaches=0
breach() {
  echo "$1"
  breaches=$((breaches + 1))
}

contains() { [[ " $1 " == *" $2 "* ]]; }

# Sets `where` to where the foreign header $2 belongs when file $1 may not include it, else to "".
where=""
find_home() {
  where=""
  case "$2" in
    nccl.h) [[ $1 == collectives/nccl/* ]] || where="only collectives/nccl/ includes it" ;;
    mpi.h) [[ $1 == collectives/mpi/* ]] || where="only collectives/mpi/ includes it" ;;
    boost/asio* | boost/beast* | openssl/*) [[ $1 == launch/* || $1 == tests/launch/* ]] || where="only launch/ includes it" ;;
    liburing.h) [[ $1 == files/* ]] || where="only files/ includes it" ;;
    cuda*) [[ $1 == */cuda/* || $1 == collectives/nccl/* ]] ||
      where="only folders named cuda and collectives/nccl/ include it" ;;
  esac
}

check_include() {
  local file=$1 line=$2 header=$3
  local room=${file%%/*} target=${header%%/*}
  find_home "$file" "$header"
  [[ -z $where ]] || breach "$file:$line: includes $header; $where"
  if [[ $target == tests && $room != tests ]]; then
    breach "$file:$line: $room includes $header; only tests include test support"
  fi
  contains "${rooms[*]}" "$room" || return 0  # tests, examples and benches see every room
  if contains "bench examples" "$target"; then
    breach "$file:$line: $room includes $header; rooms do not know $target"
  fi
  contains "${rooms[*]}" "$target" || return 0
  [[ $target == "$room" ]] && return 0
  if ! contains "${below[$room]}" "$target"; then
    breach "$file:$line: $room includes $header; it may include: ${below[$room]:-no other room}"
  elif [[ $room == model && $target == engine ]] && ! contains "$engine_public" "$header"; then
    breach "$file:$line: model includes $header; of the engine it may include: $engine_public"
  fi
}

folders=()
for folder in "${rooms[@]}" "${others[@]}"; do
  [[ -d $folder ]] && folders+=("$folder")
done
[[ -f CMakeLists.txt ]] && folders+=(CMakeLists.txt)
((${#folders[@]})) || { echo "check.sh: no room in $PWD; give the root of the source tree"; exit 2; }

mapfile -t files < <(find "${folders[@]}" -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.c' \
  -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' -o -name '*.cmake' -o -name CMakeLists.txt \
  -o -name '*.sh' -o -name '*.py' -o -path '.ci/*' \) | sort)

# A first line that names the interpreter may come before the two SPDX lines.
while IFS= read -r text; do breach "$text"; done < <(awk '
  { lines[FILENAME] = FNR }
  FNR <= 3 && /SPDX-FileCopyrightText: The ZeRO engine authors/ { text[FILENAME] = 1 }
  FNR <= 3 && /SPDX-License-Identifier: Apache-2.0/ { license[FILENAME] = 1 }
  END {
    for (i = 1; i < ARGC; ++i) {
      file = ARGV[i]
      if (!text[file] || !license[file])
        print file ":1: does not begin with the two SPDX lines; copy them from base/error.h"
      if (lines[file] > 400)
        print file ":" lines[file] ": has " lines[file] " lines; at most 400: split it by noun"
    }
  }' "${files[@]}")

# One line per circle: a strongly connected component by Tarjan's algorithm, at its first include in the order of files.
find_circles() {
  awk '
  function component(file) {
    sub(/\.(h|c|cpp|cu|cuh|inc)$/, "", file)
    sub(/-inl$/, "", file)
    return file
  }
  function visit(node,    i, next_node, last, members, count) {
    low[node] = order[node] = ++visited
    stack[++depth] = node
    for (i = 1; i <= arrows[node]; ++i) {
      next_node = arrow[node, i]
      if (!(next_node in order)) visit(next_node)
      if (!(next_node in done) && low[next_node] < low[node]) low[node] = low[next_node]
    }
    if (low[node] < order[node]) return
    do {
      last = stack[depth--]
      done[last] = node
      members = members (count++ ? ", " : "") last
    } while (last != node)
    if (count > 1) circle[node] = members
  }
  {
    split($0, part, ":")
    match($0, /"[^"]+"/)
    from = component(part[1])
    to = component(substr($0, RSTART + 1, RLENGTH - 2))
    if (from == to) next
    arrow[from, ++arrows[from]] = to
    start[NR] = from
    end[NR] = to
    place[NR] = part[1] ":" part[2]
  }
  END {
    for (i = 1; i <= NR; ++i)
      if (i in start && !(start[i] in order)) visit(start[i])
    for (i = 1; i <= NR; ++i) {
      root = done[start[i]]
      if (!(i in start) || !(root in circle) || root != done[end[i]]) continue
      print place[i] ": includes lead in a circle through " circle[root] "; what both need stands below both"
      delete circle[root]
    }
  }'
}

# One line per header that drags more headers of the tree along than it may.
find_heavy_headers() {
  awk '
  {
    split($0, part, ":")
    match($0, /"[^"]+"/)
    target[part[1], ++targets[part[1]]] = substr($0, RSTART + 1, RLENGTH - 2)
  }
  END {
    for (header in targets) {
      if (header !~ /\.(h|cuh)$/) continue
      split("", seen)
      seen[header] = 1
      todo[count = 1] = header
      for (next_one = 1; next_one <= count; ++next_one)
        for (i = 1; i <= targets[todo[next_one]]; ++i)
          if (!((it = target[todo[next_one], i]) in seen)) {
            seen[it] = 1
            todo[++count] = it
          }
      most = header ~ /^launch\/(config|generate)\// ? 25 : 70
      if (count - 1 > most)
        print header ":1: drags " count - 1 " headers along; at most " most ": declare what it names by pointer or reference alone"
    }
  }' | sort
}

# One line per type, of a room, that has the name of a type of another file's header in its namespace. In an unnamed
# namespace it would be ambiguous, and elsewhere another type of one name, wherever both are seen.
find_namesakes() {
  awk '
  FNR == 1 { depth = 0 }
  /^namespace .*\{/ {
    name = $0
    sub(/^namespace */, "", name)
    sub(/ *\{.*/, "", name)
    space[++depth] = name
  }
  /^\}  \/\/ namespace/ { --depth }
  /^(class|struct|union|enum class|enum) [A-Za-z0-9_]+( final)?( :.*)?( \{.*)?$/ && !/[^}];$/ {
    name = $0
    sub(/^(class|struct|union|enum class|enum) /, "", name)
    sub(/[^A-Za-z0-9_].*/, "", name)
    unnamed = 0
    for (i = depth; i > 0; --i) {
      if (space[i] == "") unnamed = 1
      else name = space[i] "::" name
    }
    types[++count] = name
    file[count] = FILENAME
    place[count] = FILENAME ":" FNR
    if (FILENAME ~ /\.(h|cuh)$/ && !unnamed && !(name in header)) header[name] = FILENAME
  }
  END {
    for (i = 1; i <= count; ++i) {
      owner = header[types[i]]
      if (owner != "" && owner != file[i])
        print place[i] ": " types[i] " is a type of " owner " too; give one of them another name"
    }
  }' "$@"
}

include='^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]([^">]+)[">]'
while IFS=: read -r file line text; do
  [[ $text =~ $include ]] && check_include "$file" "$line" "${BASH_REMATCH[1]}"
done < <(grep -HnE "$include" "${files[@]}" || true)

own_includes=$(printf '%s\n' "${files[@]}" | grep -v '^tests/' | xargs -r grep -HnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' || true)
for find in find_circles find_heavy_headers; do
  while IFS= read -r text; do breach "$text"; done < <(printf '%s\n' "$own_includes" | $find)
done

mapfile -t of_rooms < <(printf '%s\n' "${files[@]}" | grep -E "^($(IFS='|'; echo "${rooms[*]}"))/.*\.(h|cpp|cu|cuh|inc)$")
if ((${#of_rooms[@]})); then
  while IFS= read -r text; do breach "$text"; done < <(find_namesakes "${of_rooms[@]}")
fi

if ((breaches > 0)); then
  echo "$breaches breaches in ${#files[@]} files"
  exit 1
fi
echo "${#files[@]} files keep the rules"
