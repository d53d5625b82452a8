// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "checkpoint/crc32c.h"
#include "checkpoint/crc32c_tables.h"

namespace zero {

std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t seed) {
  using crc::kTables;
  std::uint32_t state = ~seed;
  while (bytes.size() >= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));
    word ^= state;
    state = 0;
    for (std::size_t k = 0; k < 8; ++k) state ^= kTables[7 - k][(word >> (8 * k)) & 0xffU];
    bytes = bytes.subspan(8);
  }
  for (const std::byte byte : bytes) {
    state = (state >> 8) ^ kTables[0][(state ^ std::to_integer<std::uint32_t>(byte)) & 0xffU];
  }
  return ~state;
}

}  // namespace zero
