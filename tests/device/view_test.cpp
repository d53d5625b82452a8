// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/view.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/errors.h"

namespace zero {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

TEST(Views, SliceCountsElements) {
  std::vector<float> values{0, 1, 2, 3, 4};
  const View view = View::of(std::span(values));
  const View slice = view.slice(1, 3).slice(1, 2);
  EXPECT_EQ(2, slice.count());
  EXPECT_EQ(8, slice.bytes());
  EXPECT_EQ(2.0F, slice.as<float>()[0]);
  EXPECT_EQ(nullptr, slice.device());
  EXPECT_TRUE(view.slice(5, 0).empty());
}

TEST(Views, RefuseSlicesThatReachOutside) {
  std::vector<float> values(5);
  const View view = View::of(std::span(values));
  EXPECT_EQ("slice of 3 elements at 3 is outside a view of 5 elements",
            error_of([&] { view.slice(3, 3); }));
  EXPECT_EQ("slice of 1 elements at -1 is outside a view of 5 elements",
            error_of([&] { view.slice(-1, 1); }));
  EXPECT_EQ("slice of -1 elements at 2 is outside a view of 5 elements",
            error_of([&] { view.slice(2, -1); }));
  EXPECT_NE("no error", error_of([&] { view.slice(kHuge, kHuge); }));
}

TEST(Views, ReadOnlyAsTheirOwnType) {
  std::vector<bfloat16> values(4);
  const View view = View::of(std::span(values));
  EXPECT_EQ(4U, view.as<bfloat16>().size());
  EXPECT_EQ(4U, view.as<const bfloat16>().size());
  EXPECT_EQ("view holds bf16, read as fp32", error_of([&] { view.as<float>(); }));
}

TEST(Views, ReinterpretWithinTheirBytes) {
  std::vector<float> values(4);
  const View view = View::of(std::span(values));
  EXPECT_EQ(8, view.reinterpret(DType::bf16, 8).count());
  EXPECT_EQ("cannot see 9 x bf16 in a view of 16 bytes",
            error_of([&] { view.reinterpret(DType::bf16, 9); }));
  EXPECT_EQ("cannot see -1 x fp32 in a view of 16 bytes",
            error_of([&] { view.reinterpret(DType::fp32, -1); }));
  EXPECT_NE("no error", error_of([&] { view.reinterpret(DType::fp64, kHuge / 4); }));
}

TEST(Views, OfConstantElementsAreReadable) {
  const std::vector<std::int64_t> values{7};
  EXPECT_EQ(7, View::of(std::span(values)).as<const std::int64_t>()[0]);
}

}  // namespace
}  // namespace zero
