// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/rendezvous/store/wire.h"
#include "tests/errors.h"

namespace zero {
namespace {

using namespace store_wire;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StoreWire, MessagesComeInPieces) {
  FrameReader reader(100);
  std::vector<std::string> bodies;
  for (const char byte : framed({"set", "a", ""}) + framed({"bye"})) {
    reader.append({&byte, 1});
    while (auto whole = reader.next()) bodies.push_back(*whole);
  }
  ASSERT_EQ(bodies.size(), 2U);
  EXPECT_THAT(unframed(bodies[0]), ElementsAre("set", "a", ""));
  EXPECT_THAT(unframed(bodies[1]), ElementsAre("bye"));
}

TEST(StoreWire, MessagesThatAreNoneAreRefused) {
  EXPECT_THAT(error_of([] {
                FrameReader reader(4096);
                reader.append("GET ");
                reader.next();
              }),
              HasSubstr("takes at most 4096"));
  EXPECT_THAT(error_of([] { unframed("ab"); }), HasSubstr("ends too early"));
  EXPECT_THAT(error_of([] { unframed(std::string_view("\5\0\0\0ab", 6)); }),
              HasSubstr("ends too early"));
  EXPECT_THAT(error_of([] { unframed(""); }), HasSubstr("an empty message"));
  EXPECT_THAT(error_of([] { framed({std::string((64U << 20U) + 1, 'x')}); }),
              HasSubstr("takes at most"));
  EXPECT_THAT(error_of([] { unframed(std::string(4 * (kMostParts + 1), '\0')); }),
              HasSubstr("a message of more than 1048584 strings"));
}

TEST(StoreWire, AnIntroductionNamesRankWorldAndJob) {
  const Identity identity = introduced(introduction_of({.rank = 1, .world = 3, .job = "a job"}));
  EXPECT_EQ(identity.rank, 1);
  EXPECT_EQ(identity.world, 3);
  EXPECT_EQ(identity.job, "a job");
}

TEST(StoreWire, WhatIsNoIntroductionIsRefused) {
  const auto judged = [](const Message& message) { return error_of([&] { introduced(message); }); };
  const std::string version(kVersion);
  EXPECT_THAT(judged({"set", "a", "1"}), HasSubstr("it does not say which rank it is"));
  EXPECT_THAT(judged({"iam"}), HasSubstr("it does not say which rank it is"));
  EXPECT_THAT(judged({"iam", "zero-store-9", "1", "2", ""}),
              HasSubstr("another version of the program, with zero-store-7; all ranks must run"));
  EXPECT_THAT(judged({"iam", version, "1", "2"}), HasSubstr("another version"));
  for (const std::string rank : {"", "x", "-1", "3", "1 ", "99999999999999999999"}) {
    EXPECT_THAT(judged({"iam", version, rank, "3", "job"}),
                HasSubstr("no whole number from 0 to 2"))
        << rank;
  }
  EXPECT_THAT(judged({"iam", version, "0", "0", "job"}), HasSubstr("no whole number from 1 to"));
  EXPECT_THAT(judged({"iam", version, "0", "1", std::string(kMostJobBytes + 1, 'j')}),
              HasSubstr("a job whose name has 257 bytes, expected at most 256"));
}

}  // namespace
}  // namespace zero
