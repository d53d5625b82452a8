// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include <gtest/gtest.h>

#include <array>

#include "base/error.h"

namespace zero {
namespace {

constexpr std::array kAll{DType::fp32, DType::bf16, DType::fp16, DType::fp64,
                          DType::i32,  DType::i64,  DType::u8,   DType::u16};

TEST(DTypes, NamesRoundTrip) {
  for (const DType dtype : kAll) EXPECT_EQ(dtype, dtype_from_name(name_of(dtype)));
}

TEST(DTypes, LongNamesAreAcceptedToo) {
  EXPECT_EQ(DType::fp32, dtype_from_name("float32"));
  EXPECT_EQ(DType::bf16, dtype_from_name("bfloat16"));
  EXPECT_EQ(DType::fp16, dtype_from_name("float16"));
}

TEST(DTypes, AnUnknownNameIsRefusedWithTheNamesThereAre) {
  try {
    dtype_from_name("fp8");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ("unknown dtype \"fp8\"; expected one of fp32, bf16, fp16, fp64, i32, i64, u8, u16",
                 error.what());
  }
}

TEST(DTypes, SizesAreThoseOfTheElementTypes) {
  EXPECT_EQ(4, size_of(DType::fp32));
  EXPECT_EQ(2, size_of(DType::bf16));
  EXPECT_EQ(2, size_of(DType::fp16));
  EXPECT_EQ(8, size_of(DType::fp64));
  EXPECT_EQ(4, size_of(DType::i32));
  EXPECT_EQ(8, size_of(DType::i64));
  EXPECT_EQ(1, size_of(DType::u8));
  EXPECT_EQ(2, size_of(DType::u16));
  EXPECT_EQ(DType::bf16, dtype_of<bfloat16>);
  EXPECT_EQ(DType::i64, dtype_of<std::int64_t>);
}

TEST(DTypes, FloatingAreFourOfThem) {
  int floating = 0;
  for (const DType dtype : kAll) floating += is_floating(dtype) ? 1 : 0;
  EXPECT_EQ(4, floating);
  EXPECT_TRUE(is_floating(DType::fp16));
  EXPECT_FALSE(is_floating(DType::u16));
}

}  // namespace
}  // namespace zero
