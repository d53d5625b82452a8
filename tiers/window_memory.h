// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "device/device.h"

namespace zero {

/// Host memory for the windows of a TierFile, aligned as direct transfers need it: the host aligns
/// small buffers to less. Charged to MemoryClass::staging, a block for the alignment included.
class WindowMemory {
 public:
  WindowMemory() = default;
  /// `bytes` >= 0, which is rounded up to whole blocks (TierFile::kBlock).
  WindowMemory(Device& device, std::int64_t bytes, std::string_view label);

  /// The bytes (DType::u8), from an address that is a multiple of TierFile::kBlock.
  const View& view() const { return view_; }

 private:
  Buffer buffer_;
  View view_;
};

}  // namespace zero
