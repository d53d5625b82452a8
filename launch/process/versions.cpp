// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process/versions.h"

#include <fmt/format.h>

#include "collectives/backends.h"
#include "device/cpu/primitives.h"
#include "device/cuda/gpus.h"
#include "launch/process/cpu_limit.h"
#include "ops/cuda/make_ops.h"

namespace zero {

std::string version() { return ZERO_VERSION; }

std::string kernels_text(DeviceKind device) {
  if (device == DeviceKind::cpu) return std::string(cpu::simd_target());
  return fmt::format("cuBLASLt {}, cuDNN {}", cuda::cublaslt_version(), cuda::cudnn_version());
}

std::string instructions_text(std::string_view target) {
  if (!target.starts_with("AVX3")) return std::string(target);
  return fmt::format("AVX-512 (Highway's target {})", target);
}

std::string libraries_text(DeviceKind device) {
  std::string text =
      fmt::format("zero {}\nMPI: {}\nvector instructions: {}{}", ZERO_VERSION, mpi::version(),
                  instructions_text(cpu::simd_target()), cpu_limit_text(process_environment()));
  if (device == DeviceKind::cpu) return text;  // nothing of CUDA is loaded
  return text + fmt::format("\nCUDA: {}\ncuBLASLt: {}\ncuDNN: {}\nNCCL: {}",
                            cuda::runtime_version(), cuda::cublaslt_version(),
                            cuda::cudnn_version(), nccl::version());
}

std::string version_text() {
  return fmt::format("{}\nCUDA of the driver: {}", libraries_text(DeviceKind::cuda),
                     cuda::driver_version());
}

}  // namespace zero
