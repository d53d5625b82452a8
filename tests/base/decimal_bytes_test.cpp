// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/decimal_bytes.h"

#include <gtest/gtest.h>

namespace zero {
namespace {

TEST(DecimalBytes, HaveTheUnitThatSuitsThem) {
  EXPECT_EQ(decimal_bytes(0), "0.0 kB");
  EXPECT_EQ(decimal_bytes(512), "0.5 kB");
  EXPECT_EQ(decimal_bytes(1'500'000), "1.5 MB");
  EXPECT_EQ(decimal_bytes(12'345'678'901), "12.3 GB");
}

}  // namespace
}  // namespace zero
