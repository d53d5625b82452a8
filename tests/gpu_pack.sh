#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Packs the checks of tests/gpu.sh for a host that has nothing of ours.
#
#   tests/gpu_pack.sh DIR [--arch ARCHITECTURES] [BUILD]
#       puts programs and their libraries, in one archive, and the scripts into DIR, where gpu.sh
#       unpacks what it needs while it runs. Without BUILD, builds into build-gpu first, without MPI
#       and for ARCHITECTURES alone, as CMAKE_CUDA_ARCHITECTURES has them (default: 90a-real, for H100
#       and H200)
#   tests/gpu_pack.sh --versions FILE...
#       prints the newest version of glibc and of libstdc++ that FILEs need
#   tests/gpu_pack.sh --missing BUILD
#       prints what BUILD lacks for a pack, one line each, with the command that brings it; ends with
#       1 where there is something
#
# The libraries of CUDA (libcudart aside, which is linked) come from the host. GCC's own, which may
# need a newer glibc than the programs, lie apart in lib-gcc: gpu.sh takes them where the host's are
# too old.
set -uo pipefail
case ${1-} in -h | --help) sed -n '5,21s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;; esac

readonly kPackedMegabytes=48  # what travels
readonly kPrograms=(zero_train zero_bench gpu_tests nccl_cuda_ranks)
readonly kVendors='libcudart|libcublas|libcudnn|libnccl|libnvrtc|libcuda\.'
readonly kOfGlibc='ld-linux|libc\.|libm\.|libdl\.|libpthread\.|librt\.|libresolv\.'
readonly kOfGcc='libstdc\+\+\.|libgcc_s\.'
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

say() { echo "gpu_pack.sh: $*" >&2; }

# Libraries of programs, but for those that must be the host's own.
libraries_of() {  # programs...
  ldd "$@" | awk '$3 ~ /^\// {print $3}' | sort -u | grep -vE "/($kOfGlibc|($kVendors))" || true
}

# The newest version of a kind of symbol that files need: "2.34".
newest() {  # prefix of the version, files...
  local prefix=$1
  shift
  objdump -T "$@" 2>/dev/null | grep -F '*UND*' | grep -oE "\(?${prefix}_[0-9.]+" | grep -oE '[0-9.]+$' |
    sort -Vu | tail -n 1
}

versions() {  # files...
  printf 'glibc %s\nlibstdc++ %s\n' "$(newest GLIBC "$@")" "$(newest GLIBCXX "$@")"
}

missing() {  # build
  local build=$1 program text found=0
  lacks() { echo "$1: $2"; found=1; }
  for program in "${kPrograms[@]}"; do
    [ -x "$build/bin/$program" ] || lacks "$program" "is not in $build/bin; cmake --build $build --target $program"
  done
  [ -x "$build/bin/zero_train" ] || return 1
  if ! text=$("$build/bin/zero_train" --version 2>&1); then
    lacks zero_train "does not run here: $(tail -n 1 <<<"$text")"
    return 1
  fi
  for part in CUDA cuBLASLt cuDNN NCCL; do
    grep -qE "^$part: [0-9]" <<<"$text" ||
      lacks "$part" "$(sed -n "s/^$part: //p" <<<"$text"); launch/install_cuda.sh brings it, then configure $build again: cmake --fresh -B $build -DZERO_CUDA=ON"
  done
  return $found
}

build_for() {  # architectures, build
  local jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
  cmake -S "$here/.." -B "$2" -DCMAKE_BUILD_TYPE=Release -DZERO_CUDA=ON -DZERO_MPI=OFF -DZERO_ONEDNN=OFF -DZERO_TESTS=ON \
    -DZERO_CUDA_ARCHITECTURES="$1" || return 1
  # A program for which there is no target is reported by missing().
  local program
  for program in "${kPrograms[@]}"; do
    cmake --build "$2" --parallel "$jobs" --target "$program" || true
  done
}

pack() {  # folder, build
  local folder=$1 build=$2 program library programs=() absent
  absent=$(missing "$build") || { say "nothing is packed, because this is missing:"; echo "$absent" >&2; return 1; }
  for program in "${kPrograms[@]}"; do programs+=("$build/bin/$program"); done
  rm -rf "$folder"
  mkdir -p "$folder" && folder=$(cd "$folder" && pwd) || return 1
  staging=$(mktemp -d)
  trap 'rm -rf "$staging"' EXIT
  mkdir -p "$staging/bin" "$staging/lib" "$staging/lib-gcc"
  for program in "${programs[@]}"; do strip -o "$staging/bin/$(basename "$program")" "$program"; done
  libraries_of "${programs[@]}" | while IFS= read -r library; do
    if grep -qE "/($kOfGcc)" <<<"$library"; then cp -L "$library" "$staging/lib-gcc/"
    else cp -L "$library" "$staging/lib/"; fi
  done
  cp "$here"/gpu.sh "$here"/gpu_host.sh "$here"/gpu_checks.sh "$folder/"
  versions "$staging"/bin/* "$staging"/lib/* >"$folder/needs"
  echo "lib-gcc $(newest GLIBC "$staging"/lib-gcc/*)" >>"$folder/needs"
  tar -C "$staging" -cJf "$folder/programs.tar.xz" bin lib lib-gcc || return 1
  report "$folder"
}

mebibytes() { echo $(($(du -sb "$1" | cut -f 1) / 1048576)); }  # folder

report() {  # folder
  local unpacked packed
  unpacked=$(mebibytes "$staging")
  packed=$(mebibytes "$1")
  echo "${#kPrograms[@]} programs, $(mebibytes "$staging/bin") MiB; $(find "$staging"/lib* -type f | wc -l) libraries," \
    "$((unpacked - $(mebibytes "$staging/bin"))) MiB; unpacked: $unpacked MiB; packed, in $1: $packed MiB"
  echo "needs of the host: $(sed -n '1,2p' "$1/needs" | paste -sd ',' | sed 's/,/, /')"
  if ((packed >= kPackedMegabytes)); then
    say "what travels, $1, has $packed MiB, expected less than $kPackedMegabytes; give one --arch, and a BUILD with -DZERO_ONEDNN=OFF"
    return 1
  fi
}

main() {
  local folder=${1:?usage: tests/gpu_pack.sh DIR [--arch ARCHITECTURES] [BUILD]} arch='' build=''
  shift
  while (($#)); do
    case $1 in
      --arch) arch=${2:?--arch needs architectures, as 90a-real}; shift 2 ;;
      *) build=$1; shift ;;
    esac
  done
  if [ -n "$build" ] && [ -n "$arch" ]; then
    say "--arch is for a build of gpu_pack.sh's own; $build was configured for its architectures"
    return 1
  fi
  if [ -z "$build" ]; then
    build=$here/../build-gpu
    build_for "${arch:-90a-real}" "$build" || return 1
  fi
  pack "$folder" "$build"
}

[ "${BASH_SOURCE[0]}" = "$0" ] || return 0  # read for its functions
case ${1:-} in
  --versions) shift; versions "$@" ;;
  --missing) missing "${2:?usage: tests/gpu_pack.sh --missing BUILD}" ;;
  *) main "$@" ;;
esac
