// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/collectives/messages.h"

namespace zero::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST(Agree, TheLowestFailingRankSpeaksForAll) {
  EXPECT_THAT(messages_of(3,
                          [](Communicator& ranks, Device& device) {
                            agree(ranks, device, "nothing", [] {});
                            agree(ranks, device, "some", [&] {
                              ZERO_CHECK(ranks.rank() == 0, "rank {} fails", ranks.rank());
                            });
                          }),
              Each("[rank 1] rank 1 fails"));
  EXPECT_THAT(
      messages_of(3, [](Communicator& ranks,
                        Device& device) { agree(ranks, device, "all", [] { fail("alike"); }); }),
      Each("alike"));
  EXPECT_THAT(messages_of(3,
                          [](Communicator& ranks, Device& device) {
                            agree(ranks, device, "unknown", [&] {
                              if (ranks.rank() == 2) throw 7;
                            });
                          }),
              Each("[rank 2] failed with an exception of unknown type"));
}

TEST(Agree, WhatDiffersIsNamed) {
  EXPECT_THAT(
      messages_of(
          3,
          [](Communicator& ranks, Device& device) {
            require_agreement(ranks, device, {{"a", "1"}});
            require_agreement(ranks, device, {{"a", "1"}, {"b", ranks.rank() == 2 ? "3" : "2"}});
          }),
      Each("configuration and data: rank 2 has \"b: 3\", rank 0 has \"b: 2\"; all ranks "
           "must be started alike"));
  EXPECT_THAT(messages_of(3,
                          [](Communicator& ranks, Device& device) {
                            std::map<std::string, std::string> values;
                            if (ranks.rank() == 2) values["c"] = "4";
                            require_agreement(ranks, device, values);
                          }),
              Each(HasSubstr("rank 2 has \"c: 4\", rank 0 has \"nothing more\"")));
}

}  // namespace
}  // namespace zero::test
