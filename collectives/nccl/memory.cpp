// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/memory.h"

#include "base/checked_math.h"

namespace zero::nccl {

Buffer take_scratch(Device& device, int size) {
  if (size == 1) return {};
  return device.allocate(kScratch, DType::u8, MemoryClass::communication,
                         "scratch of NCCL's ranks");
}

bool gives_memory(int size, std::int64_t count, DType dtype) {
  return size > 1 && count > 0 && checked_mul(count, size_of(dtype)) >= DeviceBytes::kPage;
}

}  // namespace zero::nccl
