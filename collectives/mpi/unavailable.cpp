// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>

#include "collectives/backends.h"

// Compiled instead of the MPI backend if CMake found no MPI.
namespace zero::mpi {

std::unique_ptr<Communicator> world(int* argc, char*** argv) {
  static_cast<void>(argc);
  static_cast<void>(argv);
  fail(
      "this build has no MPI backend; install libopenmpi-dev and openmpi-bin, then configure again "
      "with -DZERO_MPI=ON");
}

bool available() { return false; }

std::string version() {
  return "none in this build; it needs libopenmpi-dev and openmpi-bin, and -DZERO_MPI=ON";
}

void abort(int exit_code) noexcept {
  std::fflush(nullptr);
  std::_Exit(exit_code);
}

}  // namespace zero::mpi
