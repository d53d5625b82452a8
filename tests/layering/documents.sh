#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# documents.sh ROOT: what a grep can hold of the documents in the root and in docs/. Prints one line per
# breach, "file:line: what; what is allowed", and ends with 1 if there is any.
#   - documents keep their lengths: lines of a document, characters of a line
#   - a file or folder of the tree that a document names is there; names with a word in capitals
#     (NAME, FAMILY) are placeholders
#   - a key of the sections run and mesh that a document names is in the table of options
#   - a link leads to a file, and to a heading of that file
set -euo pipefail
export LC_ALL=C.UTF-8
cd "${1:?usage: documents.sh ROOT}"

readonly kColumns=120
roots='base|files|device|partition|architecture|ops|weights|text|collectives|optim|engine|model|checkpoint|inference|launch|bench|cmake|examples|tests|docs|\.ci'

breaches=0
breach() {
  echo "$1"
  breaches=$((breaches + 1))
}

# Lines that a document may have.
most_lines() {
  case $1 in
    README.md) echo 120 ;;
    docs/performance.md) echo 130 ;;
    *) echo 200 ;;
  esac
}

check_length() {
  local file=$1 lines most line
  lines=$(wc -l <"$file")
  most=$(most_lines "$file")
  ((lines <= most)) || breach "$file:$lines: has $lines lines; at most $most: move details to a page of docs/"
  while IFS=: read -r line _; do
    breach "$file:$line: is longer than $kColumns characters"
  done < <(grep -nE "^.{$((kColumns + 1)),}" "$file" || true)
}

# Paths from the root of the tree: a room, a slash, and more.
check_paths() {
  local file=$1 line path
  while IFS=: read -r line path; do
    path=${path#[^a-z.]}
    path=${path%.}
    [[ $path =~ [A-Z]{3} || -e $path ]] || breach "$file:$line: names $path, which is not in the tree"
  done < <(grep -noE "(^|[^A-Za-z0-9_./{,-])($roots)/[A-Za-z0-9_./-]*" "$file" || true)
}

check_keys() {
  local file=$1 line key
  while IFS=: read -r line key; do
    grep -rqF --include='*.cpp' -e "\"$key\"" -e "\"${key#*.}\"" launch ||
      breach "$file:$line: names the key $key, which is in no table of options under launch/"
  done < <(grep -noE '`(run|mesh)\.[a-z_]+' "$file" | tr -d '`' || true)
}

# The anchors of a document's headings, as GitHub makes them.
anchors() {
  grep -E '^#+ ' "$1" | sed -E 's/^#+ //' | tr '[:upper:]' '[:lower:]' | sed -E 's/[^[:alnum:] _-]//g; s/ /-/g'
}

check_links() {
  local file=$1 line link target
  while IFS=: read -r line link; do
    link=${link#](}
    link=${link%)}
    [[ $link == http* ]] && continue
    target=${link%%#*}
    if [[ -z $target ]]; then target=$file; else target=$(dirname "$file")/$target; fi
    if [[ ! -e $target ]]; then
      breach "$file:$line: links to $link, which is not in the tree"
    elif [[ $link == *#* ]] && ! anchors "$target" | grep -xF -- "${link#*#}" >/dev/null; then
      breach "$file:$line: links to $link; $(basename "$target") has no such heading"
    fi
  done < <(grep -noE '\]\([^) ]+\)' "$file" || true)
}

documents=()
for file in README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md docs/*.md; do
  [[ -f $file ]] && documents+=("$file")
done
((${#documents[@]})) || { echo "documents.sh: no document in $PWD; give the root of the source tree"; exit 2; }
for file in "${documents[@]}"; do
  check_length "$file"
  check_paths "$file"
  check_keys "$file"
  check_links "$file"
done

if ((breaches > 0)); then
  echo "$breaches breaches in ${#documents[@]} documents"
  exit 1
fi
echo "${#documents[@]} documents keep the rules"
