// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "collectives/nccl/gpu.h"
#include "tests/nccl/fake_nccl.h"

// In place of collectives/nccl/gpu.cpp: any device is the GPU that fake_nccl::rank() describes, and
// the fake has no streams.
namespace zero::nccl {

Gpu use_gpu_of(const Device& device) {
  const test::fake_nccl::Rank& rank = test::fake_nccl::rank();
  if (!rank.gpu_id.empty()) return {rank.gpu, rank.gpu_id};
  return {rank.gpu, fmt::format("GPU-{}", static_cast<const void*>(&device))};
}

cudaStream_t native(Stream&) { return nullptr; }

}  // namespace zero::nccl
