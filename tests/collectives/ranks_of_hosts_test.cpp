// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/ranks_of_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random_hex.h"

namespace zero {
namespace {

using ::testing::ElementsAre;

TEST(RanksOfHosts, AreNumberedByTheirFirstRanks) {
  const RanksOfHosts hosts({"b", "a", "b", "c", "a"});
  EXPECT_THAT(hosts.names(), ElementsAre("b", "a", "c"));
  EXPECT_EQ(hosts.hosts(), 3);
  EXPECT_EQ(hosts.ranks(), 5);
  EXPECT_THAT(hosts.ranks_of(1), ElementsAre(1, 4));
  EXPECT_EQ(hosts.host_of(4), 1);
  EXPECT_EQ(hosts.first_rank(2), 3);
  EXPECT_EQ(hosts.led_by(1), 1);
  EXPECT_EQ(hosts.led_by(2), -1);
  EXPECT_EQ(RanksOfHosts().hosts(), 0);
}

TEST(RandomHex, HasAsManyDigitsAndIsNotRepeated) {
  const std::string one = random_hex(19);
  EXPECT_EQ(one.size(), 19U);
  EXPECT_EQ(one.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(one, random_hex(19));
}

}  // namespace
}  // namespace zero
