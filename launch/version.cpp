// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/version.h"

#include <fmt/format.h>

#include "collectives/backends.h"
#include "device/cpu/primitives.h"
#include "launch/cpu_limit.h"
#include "launch/process.h"
#include "model/cuda/libraries.h"

namespace zero {

std::string libraries_text() {
  return fmt::format(
      "zero {}\nMPI: {}\nvector instructions: {}{}\nCUDA: {}\ncuBLASLt: {}\n"
      "cuDNN: {}\nNCCL: {}",
      ZERO_VERSION, mpi::version(), cpu::simd_target(), cpu_limit_text(process_environment()),
      cuda::runtime_version(), cuda::cublaslt_version(), cuda::cudnn_version(), nccl::version());
}

std::string version_text() {
  return fmt::format("{}\nCUDA of the driver: {}", libraries_text(), cuda::driver_version());
}

}  // namespace zero
