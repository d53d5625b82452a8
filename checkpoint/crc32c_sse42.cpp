// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <nmmintrin.h>

#include <cstring>

#include "checkpoint/crc32c.h"
#include "checkpoint/crc32c_tables.h"

namespace zero {
namespace {

// The instruction takes three cycles and can start in every one: three streams of this many bytes
// keep it busy, and are then put together.
constexpr int kStreamDoublings = 12;
constexpr std::size_t kStream = std::size_t{1} << kStreamDoublings;

/// The map of a state to the state after kStream zero bytes, by the bytes of the state.
constexpr std::array<crc::Table, 4> make_shift() {
  constexpr crc::Map kMap = crc::zeros(kStreamDoublings);
  std::array<crc::Table, 4> shift{};
  for (std::size_t byte = 0; byte < 4; ++byte) {
    for (std::uint32_t value = 0; value < 256; ++value) {
      shift[byte][value] = crc::image_of(kMap, value << (8 * byte));
    }
  }
  return shift;
}
constexpr auto kShift = make_shift();

std::uint64_t shifted(std::uint64_t state) {
  return kShift[0][state & 0xffU] ^ kShift[1][(state >> 8) & 0xffU] ^
         kShift[2][(state >> 16) & 0xffU] ^ kShift[3][(state >> 24) & 0xffU];
}

std::uint64_t word_at(const std::byte* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::span<const std::byte> bytes,
                                                               std::uint32_t seed) {
  std::uint64_t state = ~seed;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 3 * kStream; left -= 3 * kStream, at += 3 * kStream) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < kStream; i += 8) {
      state = _mm_crc32_u64(state, word_at(at + i));
      second = _mm_crc32_u64(second, word_at(at + kStream + i));
      third = _mm_crc32_u64(third, word_at(at + 2 * kStream + i));
    }
    state = shifted(shifted(state) ^ second) ^ third;
  }
  for (; left >= 8; left -= 8, at += 8) state = _mm_crc32_u64(state, word_at(at));
  auto narrow = static_cast<std::uint32_t>(state);
  for (; left > 0; --left, ++at) {
    narrow = _mm_crc32_u8(narrow, std::to_integer<unsigned char>(*at));
  }
  return ~narrow;
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed) {
  if (__builtin_cpu_supports("sse4.2") != 0) return by_instruction(bytes, seed);
  return crc32c_by_table(bytes, seed);
}

}  // namespace zero
