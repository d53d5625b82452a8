// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "scratch.h"

namespace zero {
namespace {

using testing::error_of;

TEST(Decode, RoundsAndKeepsWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> from = {1.0F, 1.0009765625F, -kInfinity, 1e30F, NAN};
  std::vector<float16> halves(5);
  decode(FileType::f32, std::as_bytes(std::span(from)), View::of(std::span(halves)));
  EXPECT_EQ(to_float(halves[1]), 1.0009765625F);
  EXPECT_EQ(to_float(halves[2]), -kInfinity);
  EXPECT_EQ(to_float(halves[3]), kInfinity);
  EXPECT_TRUE(std::isnan(to_float(halves[4])));
  std::vector<bfloat16> brains(5);
  decode(FileType::f16, std::as_bytes(std::span(halves)), View::of(std::span(brains)));
  EXPECT_EQ(to_float(brains[1]), 1.0F);  // 1 + 2^-10, rounded to 8 bits
  EXPECT_TRUE(std::isnan(to_float(brains[4])));
}

TEST(Decode, RefusesOtherTypesAndCounts) {
  std::vector<float> to(2);
  std::vector<std::int32_t> integers(2);
  const std::vector<std::byte> bytes(8);
  EXPECT_EQ(error_of([&] { decode(FileType::i32, bytes, View::of(std::span(to))); }),
            "elements of I32 cannot be read; expected F32, BF16 or F16");
  EXPECT_EQ(error_of([&] { decode(FileType::f32, bytes, View::of(std::span(integers))); }),
            "elements of i32 cannot be made from a file; expected fp32, bf16 or fp16");
  EXPECT_EQ(error_of([&] { decode(FileType::bf16, bytes, View::of(std::span(to))); }),
            "8 bytes of BF16 do not make 2 elements");
}

}  // namespace
}  // namespace zero
