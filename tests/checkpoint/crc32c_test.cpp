// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <boost/crc.hpp>
#include <random>
#include <string_view>
#include <vector>

#include "weights/file_blocks.h"

namespace zero {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::uint32_t by_boost(std::span<const std::byte> bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> sum;
  sum.process_bytes(bytes.data(), bytes.size());
  return sum.checksum();
}

std::vector<std::byte> random_bytes(std::size_t count) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Known answers: the check value of the algorithm, and those of RFC 3720, appendix B.4.
TEST(Crc32c, HasTheKnownAnswers) {
  std::vector<std::byte> ascending;
  for (int i = 0; i < 32; ++i) ascending.push_back(static_cast<std::byte>(i));
  EXPECT_EQ(crc32c({}), 0U);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283U);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32)), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62a8ab43U);
  EXPECT_EQ(crc32c(ascending), 0x46dd794eU);
}

TEST(Crc32c, IsBoostsAtEverySizeAndPlace) {
  const std::vector<std::byte> all = random_bytes(3 * 12288 + 64);
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (const std::size_t size :
         {0, 1, 7, 8, 9, 15, 63, 4095, 4096, 12287, 12288, 12289, 24576, 24583, 36864, 36871}) {
      const auto bytes = std::span(all).subspan(begin, size);
      ASSERT_EQ(crc32c(bytes), by_boost(bytes)) << size << " bytes from " << begin;
    }
  }
}

}  // namespace
}  // namespace zero
