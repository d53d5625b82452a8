// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <exception>

#include "collectives/backends.h"

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

}  // namespace zero::test
