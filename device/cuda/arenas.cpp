// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/arenas.h"

#include <cuda_runtime_api.h>

#include "base/error.h"
#include "device/cuda/check.h"
#include "device/listed_bytes.h"

namespace zero::cuda {
namespace {

[[noreturn]] void fail_for(std::string_view device, MemoryClass missing,
                           const BytesByClass& reserve) {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "ask for the free memory");
  fail(
      "device {}: out of memory before the first step: the run needs (bytes) {}, and there is no "
      "room for its {}: {} of the GPU's {} are free; use more ranks, a higher stage or a smaller "
      "micro-batch",
      device, listed(reserve), name_of(missing), free, total);
}

}  // namespace

Arenas::Arenas(std::string_view device, const BytesByClass& reserve) {
  for (const MemoryClass c : all_memory_classes()) {
    const std::int64_t bytes = reserve[static_cast<std::size_t>(c)];
    if (bytes > 0 && !of(c).reserve(bytes)) fail_for(device, c, reserve);
  }
}

BytesByClass Arenas::high_water() const {
  BytesByClass bytes{};
  for (std::size_t c = 0; c < bytes.size(); ++c) bytes[c] = arenas_[c].high_water();
  return bytes;
}

std::int64_t Arenas::taken() const {
  std::int64_t bytes = 0;
  for (const Arena& arena : arenas_) bytes += arena.taken();
  return bytes;
}

}  // namespace zero::cuda
