// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/capacity.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/cgroup.h"
#include "base/error.h"
#include "device/cuda/check.h"

namespace zero::cuda {

MemoryCapacity current_capacity() {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "ask for the free memory");
  MemoryCapacity capacity{.total = static_cast<std::int64_t>(total),
                          .free = static_cast<std::int64_t>(free)};
  int index = 0;
  int integrated = 0;
  check(cudaGetDevice(&index), "ask for the current device");
  check(cudaDeviceGetAttribute(&integrated, cudaDevAttrIntegrated, index),
        "ask whether a device shares the host's memory");
  if (integrated != 0) {
    capacity.free = std::min(available_memory().value_or(capacity.free), capacity.total);
  }
  return capacity;
}

void require_room_for_kernels(std::string_view what) {
  const MemoryCapacity capacity = current_capacity();
  ZERO_CHECK(capacity.free >= kRoomForKernels,
             "cuda: there is no kernel for {} while {} of the GPU's {} bytes are free: libraries "
             "load kernels when first asked for them, expected at least {} bytes for that; leave "
             "more of the GPU free, by a smaller run.memory_limit or --memory-limit",
             what, capacity.free, capacity.total, kRoomForKernels);
}

}  // namespace zero::cuda
