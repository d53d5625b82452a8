// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "ops/inference_ops.h"
#include "tests/errors.h"

namespace zero::testing {
namespace {

TEST(CacheFormats, HaveNames) {
  EXPECT_EQ(cache_format_from_name("dtype"), CacheFormat::plain);
  EXPECT_EQ(cache_format_from_name("int8"), CacheFormat::int8);
  EXPECT_EQ(error_of([] { cache_format_from_name("q4"); }),
            "the cache is \"q4\"; expected dtype or int8");
}

TEST(CacheShapes, TakeAByteAnElementAndAScaleATokenAndHead) {
  const CacheShape shape{3, 64, 32, DType::fp32, CacheFormat::int8};
  EXPECT_EQ(shape.block_bytes(), 3 * 32 * 2 * (64 + 4));
  EXPECT_EQ(CacheShape({3, 64, 32, DType::bf16}).block_bytes(), 3 * 32 * 2 * 64 * 2);
}

}  // namespace
}  // namespace zero::testing
