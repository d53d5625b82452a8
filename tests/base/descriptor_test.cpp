// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace zero {
namespace {

void check_closes_from(void (*close_from)(int)) {
  constexpr int kFirst = 300;  // above all that this process has open
  const int below = ::fcntl(STDERR_FILENO, F_DUPFD, 200);
  const int one = ::fcntl(STDERR_FILENO, F_DUPFD, kFirst);
  const int two = ::fcntl(STDERR_FILENO, F_DUPFD, kFirst + 100);
  ASSERT_TRUE(below >= 200 && below < kFirst && one == kFirst && two == kFirst + 100);
  close_from(kFirst);
  EXPECT_EQ(::fcntl(one, F_GETFD), -1);
  EXPECT_EQ(::fcntl(two, F_GETFD), -1);
  EXPECT_NE(::fcntl(below, F_GETFD), -1);
  ::close(below);
}

TEST(Descriptors, AreClosedFromOneOn) { check_closes_from(close_descriptors); }

TEST(Descriptors, AreClosedByTheirListWhereTheKernelRefuses) {
  check_closes_from(close_listed_descriptors);
}

}  // namespace
}  // namespace zero
