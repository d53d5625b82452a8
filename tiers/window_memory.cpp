// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tiers/window_memory.h"

#include <limits>

#include "base/checked_math.h"
#include "tiers/tier_file.h"

namespace zero {

WindowMemory::WindowMemory(Device& device, std::int64_t bytes, std::string_view label) {
  constexpr std::int64_t kBlock = TierFile::kBlock;
  ZERO_CHECK(bytes >= 0 && bytes <= std::numeric_limits<std::int64_t>::max() - 2 * kBlock,
             "tiers: cannot allocate windows of {} bytes for \"{}\"", bytes, label);
  if (bytes == 0) return;
  const std::int64_t blocks = round_up(bytes, kBlock);
  buffer_ = device.allocate_host(blocks + kBlock, DType::u8, MemoryClass::staging, label);
  const auto address = reinterpret_cast<std::uintptr_t>(buffer_.view().data());
  const auto behind = static_cast<std::int64_t>(address % static_cast<std::uintptr_t>(kBlock));
  view_ = buffer_.slice(behind == 0 ? 0 : kBlock - behind, blocks);
}

}  // namespace zero
