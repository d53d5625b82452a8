// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "tests/checkpoint/tensor_files.h"
#include "weights/hf/safetensors.h"

namespace zero {
namespace {

TEST(Decode, IsExactAndKeepsWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> from = {1.0F, 1.0009765625F, -kInfinity, 1e30F, NAN};
  std::vector<float16> halves;
  std::vector<bfloat16> brains;
  for (const float value : from) {
    halves.push_back(to_float16(value));
    brains.push_back(to_bfloat16(value));
  }
  std::vector<float> to(5);
  decode(FileType::f32, std::as_bytes(std::span(from)), to);
  EXPECT_EQ(std::memcmp(to.data(), from.data(), 5 * sizeof(float)), 0);
  decode(FileType::f16, std::as_bytes(std::span(halves)), to);
  EXPECT_EQ(to[1], 1.0009765625F);
  EXPECT_EQ(to[2], -kInfinity);
  EXPECT_EQ(to[3], kInfinity);
  EXPECT_TRUE(std::isnan(to[4]));
  decode(FileType::bf16, std::as_bytes(std::span(brains)), to);
  EXPECT_EQ(to[1], 1.0F);  // 1 + 2^-10, rounded to 8 bits when the file was written
  EXPECT_EQ(to[2], -kInfinity);
  EXPECT_TRUE(std::isnan(to[4]));
}

TEST(Decode, RefusesOtherTypesAndCounts) {
  std::vector<float> to(2);
  const std::vector<std::byte> bytes(8);
  EXPECT_EQ(error_of([&] { decode(FileType::i32, bytes, to); }),
            "elements of I32 cannot be read; expected F32, BF16 or F16");
  EXPECT_EQ(error_of([&] { decode(FileType::bf16, bytes, to); }),
            "8 bytes of BF16 do not make 2 elements");
}

}  // namespace
}  // namespace zero
