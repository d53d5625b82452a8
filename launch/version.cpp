// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "collectives/backends.h"
#include "device/cpu/primitives.h"
#include "launch/process.h"
#include "model/ops.h"

namespace zero {

std::string version_text() {
  return fmt::format(
      "zero {}\ncollectives: local, {}\nproducts: oneDNN {}\nvector instructions: {}", ZERO_VERSION,
      mpi::available() ? ZERO_MPI_VERSION : "no MPI in this build", ZERO_ONEDNN_VERSION,
      cpu::simd_target());
}

}  // namespace zero
