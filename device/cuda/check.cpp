// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/check.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace zero::cuda {
namespace {

constexpr std::array kSticky{
    cudaErrorIllegalAddress,      cudaErrorLaunchTimeout,      cudaErrorLaunchFailure,
    cudaErrorHardwareStackError,  cudaErrorIllegalInstruction, cudaErrorMisalignedAddress,
    cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,          cudaErrorAssert,
    cudaErrorECCUncorrectable,
};

std::string_view advice(cudaError_t status) {
  if (is_sticky(status)) {
    return "; the error is sticky: an earlier kernel broke this process's CUDA context and every "
           "later call fails with it; find the kernel with CUDA_LAUNCH_BLOCKING=1 or "
           "compute-sanitizer";
  }
  if (status == cudaErrorInsufficientDriver) return "; install a newer NVIDIA driver";
  if (status == cudaErrorNoKernelImageForDevice) {
    return "; this build has no code for this GPU; on its machine configure with "
           "-DZERO_CUDA_ARCHITECTURES=native";
  }
  return "";
}

}  // namespace

bool is_sticky(cudaError_t status) { return std::ranges::find(kSticky, status) != kSticky.end(); }

void check(cudaError_t status, std::string_view what, std::source_location where) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears a non-sticky error, so that no later call returns it
  fail("cuda: {}: {} ({}) at {}:{}{}", what, cudaGetErrorName(status), cudaGetErrorString(status),
       where.file_name(), where.line(), advice(status));
}

}  // namespace zero::cuda
