// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/version.h"

#include <cuda_runtime_api.h>

#include "base/error.h"
#include "device/cuda/check.h"

namespace zero::cuda {
namespace {

std::string text_of(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

std::string runtime_version() {
  int version = 0;
  check(cudaRuntimeGetVersion(&version), "read the runtime's version");
  return text_of(version);
}

std::string driver_version() {
  int version = 0;
  check(cudaDriverGetVersion(&version), "read the driver's version");
  return version > 0 ? text_of(version) : "none";
}

}  // namespace zero::cuda
