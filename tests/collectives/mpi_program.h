// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <exception>
#include <string>

#include "collectives/backends.h"
#include "collectives/mpi/options.h"

namespace zero::test {

/// What main() returns of a program whose ranks mpirun starts: an exception of `run` is printed,
/// and ends all ranks with status 3.
inline int mpi_program(int argc, char** argv, void (*run)(int* argc, char*** argv)) {
  try {
    run(&argc, &argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    mpi::abort(3);
  }
  return 0;
}

/// The hosts of ranks by a letter each, as in "aab", or "messages": as without memory in common.
inline mpi::Options options_of(const std::string& layout) {
  if (layout == "messages") return {.host_memory = mpi::Options::HostMemory::unused};
  mpi::Options options;
  for (const char letter : layout) options.hosts.push_back(letter - 'a');
  return options;
}

}  // namespace zero::test
