// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace zero::crc {

// CRC32C as arithmetic of polynomials over two elements, bits reflected: the state after a byte is
// linear in the state before it.

inline constexpr std::uint32_t kPolynomial = 0x82f63b78U;

using Table = std::array<std::uint32_t, 256>;

/// kTables[k][b]: the state after byte b, from state 0, and k zero bytes.
template <std::size_t Tables>
constexpr std::array<Table, Tables> make_tables() {
  std::array<Table, Tables> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1U) != 0 ? kPolynomial : 0U);
    tables[0][byte] = state;
  }
  for (std::size_t k = 1; k < Tables; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xffU];
    }
  }
  return tables;
}
inline constexpr auto kTables = make_tables<8>();

/// A linear map of states, by its values for each bit.
using Map = std::array<std::uint32_t, 32>;

constexpr std::uint32_t image_of(const Map& map, std::uint32_t state) {
  std::uint32_t result = 0;
  for (std::size_t bit = 0; state != 0; ++bit, state >>= 1) {
    if ((state & 1U) != 0) result ^= map[bit];
  }
  return result;
}

/// The map of a state to the state after 2^`doublings` zero bytes.
constexpr Map zeros(int doublings) {
  Map map{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    const std::uint32_t state = std::uint32_t{1} << bit;
    map[bit] = (state >> 8) ^ kTables[0][state & 0xffU];
  }
  for (int i = 0; i < doublings; ++i) {
    Map twice{};
    for (std::size_t bit = 0; bit < 32; ++bit) twice[bit] = image_of(map, map[bit]);
    map = twice;
  }
  return map;
}

}  // namespace zero::crc
