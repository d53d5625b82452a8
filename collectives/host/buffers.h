// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "collectives/communicator.h"
#include "collectives/host/group.h"

namespace zero::host {

/// The arguments of Communicator::allocate.
struct BufferRequest {
  Device& device;
  std::int64_t count = 0;
  DType dtype = DType::fp32;
  MemoryClass memory_class = MemoryClass::other;
  std::string_view label;
};

/// A buffer that the host's other ranks can read; a buffer of the device's own if sharing does not
/// pay at this size, `memory` is null or has no room, or the device is not the CPU.
Buffer region_buffer(const std::shared_ptr<Memory>& memory, const BufferRequest& request);

/// One buffer that all ranks of `group` map; empty, on all of them alike, if no memory could be
/// shared. Collective like Group::allocate_shared.
std::optional<Buffer> shared_buffer(Group& group, const Group::AllGatherTexts& all_gather_texts,
                                    const BufferRequest& request);

}  // namespace zero::host
