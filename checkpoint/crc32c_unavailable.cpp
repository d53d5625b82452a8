// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/crc32c.h"

namespace zero {

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed) {
  return crc32c_by_table(bytes, seed);
}

}  // namespace zero
