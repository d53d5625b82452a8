// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/product_probe.h"
#include "bench/product_rate.h"
#include "tests/errors.h"

namespace zero::bench {
namespace {

TEST(WithoutOneDnn, TheProductRateIsThatOfMultiplyAdds) {
  EXPECT_FALSE(ProductProbe::available(DType::fp32));
  ProductRate rate(DType::bf16, 1);
  EXPECT_EQ(rate.rate(), 0);
  EXPECT_GT(rate.sample(1), 0);
  EXPECT_EQ(rate.remark(), ", limit in fp32");
}

TEST(WithoutOneDnn, AProbeSaysWhatIsMissing) {
  EXPECT_THAT(error_of([] {
                ProductProbe({"", 16, 16, 16}, DType::fp32, ProductProbe::Layout::plain, 1);
              }),
              ::testing::HasSubstr("no oneDNN to measure beside"));
}

}  // namespace
}  // namespace zero::bench
