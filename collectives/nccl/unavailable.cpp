// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends.h"

// Compiled instead of the NCCL backend if CMake found no CUDA or no NCCL.
namespace zero::nccl {

std::unique_ptr<Communicator> world(const StoreRank& /*self*/, Device& /*device*/,
                                    const Options& /*options*/) {
  fail(
      "this build has no NCCL backend; launch/install_cuda.sh brings CUDA and NCCL, then configure "
      "again with -DZERO_CUDA=ON");
}

bool available() { return false; }

std::string version() {
  return "none in this build; it needs launch/install_cuda.sh and -DZERO_CUDA=ON";
}

}  // namespace zero::nccl
