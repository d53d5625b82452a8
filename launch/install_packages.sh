#!/usr/bin/env bash
# SPDX-FileCopyrightText: The ZeRO engine authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs the missing ones of the packages that the project needs; the only list of them.
# Names are those of Debian 12 and Ubuntu 24.04.
#
#   launch/install_packages.sh [run] [text] [test] [ci] [cuda]
#
#   run   to build and run the programs (the default)
#   text  the English text that launch/quickstart.sh trains on: unpacked into data/packages/, not installed,
#         because the package needs a dictionary server that it would start
#   test  also for the tests and zero_bench
#   ci    also for .ci/run: formatting, static analysis, the second compiler
#   cuda  for launch/install_cuda.sh
#
# If nothing is missing, the script does nothing and needs no rights. Otherwise apt installs the packages, as
# root or with sudo; without either, the script lists the missing packages and exits with status 1.
set -euo pipefail

# Columns: group, package, and a test that finds the package's content without asking dpkg.
readonly kPackages='
run   g++                  command:g++
run   cmake                command:cmake
run   ninja-build          command:ninja
run   ccache               command:ccache
run   pkg-config           command:pkg-config
run   libopenmpi-dev       command:mpicc
run   openmpi-bin          command:mpirun
run   libhwy-dev           header:hwy/highway.h
run   libfmt-dev           header:fmt/format.h
run   nlohmann-json3-dev   header:nlohmann/json.hpp
run   libcli11-dev         header:CLI/CLI.hpp
run   libxxhash-dev        header:xxhash.h
run   libboost-dev         header:boost/asio.hpp
run   libisal-dev          header:isa-l/crc.h
run   liburing-dev         header:liburing.h
run   libssl-dev           header:openssl/hmac.h
run   libsentencepiece-dev header:sentencepiece_processor.h
run   libpcre2-dev         file:/usr/include/pcre2.h
run   libutf8proc-dev      header:utf8proc.h
text  dict-gcide           unpacked:/usr/share/dictd/gcide.dict.dz
test  libdnnl-dev          header:dnnl.hpp
test  ocl-icd-opencl-dev   header:CL/cl.h
test  libgtest-dev         header:gtest/gtest.h
test  libgmock-dev         header:gmock/gmock.h
test  librapidcheck-dev    header:rapidcheck.h
ci    git                  command:git
ci    clang-format-14      command:clang-format-14
ci    clang-tidy-16        command:clang-tidy-16
ci    clang-16             command:clang++-16
ci    libclang-rt-16-dev   file:/usr/lib/llvm-16/lib/clang/16/lib/linux/libclang_rt.fuzzer-x86_64.a
ci    lld                  command:ld.lld
ci    libomp-16-dev        file:/usr/lib/llvm-16/lib/libomp.so
cuda  python3-pip          command:pip3
'

kUnpacked=$(dirname "$(realpath "$0")")/../data/packages
readonly kUnpacked

usage() { sed -n '5,20s/^# \{0,1\}//p' "$0"; }

packages_of() {  # groups...
  local group
  for group in "$@"; do
    awk -v group="$group" '$1 == group {print $2}' <<<"$kPackages"
  done
}

# Whether the content of a package is usable, even if dpkg did not install it.
found() {  # package
  local probe
  probe=$(awk -v package="$1" '$2 == package {print $3}' <<<"$kPackages")
  case $probe in
    command:*) command -v "${probe#command:}" >/dev/null ;;
    header:*) echo "#include <${probe#header:}>" | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1 ;;
    file:*) [ -e "${probe#file:}" ] ;;
    unpacked:*) [ -e "${probe#unpacked:}" ] || [ -e "$kUnpacked${probe#unpacked:}" ] ;;
  esac
}

installed_by_dpkg() {  # packages...; prints those that are
  command -v dpkg-query >/dev/null || return 0
  dpkg-query -W -f='${Package} ${db:Status-Status}\n' "$@" 2>/dev/null \
    | awk '$2 == "installed" {print $1}' || true
}

missing_of() {  # packages...; prints those that are missing
  local package have
  have=$(installed_by_dpkg "$@")
  for package in "$@"; do
    grep -qxF -- "$package" <<<"$have" || found "$package" || echo "$package"
  done
}

refuse() {  # reason packages...
  local reason=$1
  shift
  {
    echo "install_packages: $reason. Missing packages (names of Debian 12 and Ubuntu 24.04):"
    printf '  %s\n' "$@"
    echo "Install them and run this again."
  } >&2
  exit 1
}

# Whether the package is unpacked into data/packages/ instead of being installed.
is_unpacked() {  # package
  grep -qE "^[a-z]+ +$1 +unpacked:" <<<"$kPackages"
}

unpack() {  # package; needs no rights, but apt's lists
  local folder
  folder=$(mktemp -d)
  (cd "$folder" && apt-get download -qq -o APT::Sandbox::User= "$1" 2>/dev/null) \
    && mkdir -p "$kUnpacked" && dpkg-deb -x "$folder"/*.deb "$kUnpacked"
  local status=$?
  rm -rf "$folder"
  return "$status"
}

main() {
  local groups=() argument
  for argument in "$@"; do
    case $argument in
      run | text | test | ci | cuda) groups+=("$argument") ;;
      -h | --help) usage; exit 0 ;;
      *) echo "install_packages: unknown group '$argument'; expected run, text, test, ci or cuda" >&2; exit 2 ;;
    esac
  done
  [ ${#groups[@]} -gt 0 ] || groups=(run)

  local wanted missing as_root=()
  mapfile -t wanted < <(packages_of "${groups[@]}")
  mapfile -t missing < <(missing_of "${wanted[@]}")
  [ ${#missing[@]} -gt 0 ] || return 0

  command -v apt-get >/dev/null || refuse "no apt-get on this system" "${missing[@]}"
  local package left=()
  for package in "${missing[@]}"; do
    if is_unpacked "$package" && unpack "$package"; then continue; fi
    left+=("$package")
  done
  missing=("${left[@]}")
  [ ${#missing[@]} -gt 0 ] || return 0

  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || refuse "not root, and no sudo on this system" "${missing[@]}"
    as_root=(sudo)
    # Without a terminal nobody can type a password: -n keeps sudo from waiting for one.
    [ -t 0 ] || as_root=(sudo -n)
    "${as_root[@]}" true 2>/dev/null || refuse "not root, and sudo refuses" "${missing[@]}"
  fi
  echo "install_packages: installing ${#missing[@]} packages, which may take minutes: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  local installed=()
  for package in "${missing[@]}"; do
    if ! is_unpacked "$package"; then
      installed+=("$package")
    elif ! unpack "$package"; then
      refuse "$package cannot be downloaded, or not be unpacked into $kUnpacked" "$package"
    fi
  done
  [ ${#installed[@]} -gt 0 ] || return 0
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -qq -y --no-install-recommends -o Dpkg::Use-Pty=0 "${installed[@]}" </dev/null >/dev/null
}

main "$@"
