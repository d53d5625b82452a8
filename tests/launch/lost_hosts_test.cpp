// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/lost_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace std::chrono_literals;

constexpr LostHosts::Clock::time_point kBegin{};

LostHosts::Losses all_lost(int hosts) {
  LostHosts::Losses losses;
  for (int host = 0; host < hosts; ++host) losses[host] = PeerLoss::unreachable;
  return losses;
}

LostHosts hosts_of(int count) {
  LostHosts hosts;
  for (int host = 0; host < count; ++host) {
    hosts.expect(host, "host " + std::to_string(host), kBegin);
  }
  return hosts;
}

TEST(LostHosts, ALossAndItsEndAreSaidOnceEach) {
  LostHosts hosts = hosts_of(1);
  for (auto now = kBegin; now < kBegin + 60s; now += 200ms) {
    hosts.hear(0, now);
    EXPECT_THAT(hosts.note({}, now), IsEmpty());
  }
  hosts.hear(0, kBegin + 60s);
  for (const auto end : {100s, 200s}) {
    std::vector<std::string> lines;
    for (auto now = kBegin + end - 37'900ms; now < kBegin + end - 100ms; now += 200ms) {
      for (auto& line : hosts.note(all_lost(1), now)) lines.push_back(std::move(line));
    }
    EXPECT_EQ(hosts.loss_of(0), PeerLoss::unreachable);
    hosts.hear(0, kBegin + end);
    for (auto& line : hosts.note({}, kBegin + end)) lines.push_back(std::move(line));
    EXPECT_EQ(hosts.loss_of(0), std::nullopt);
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_THAT(lines.front(), HasSubstr("heartbeats of host 0 have been missing for "));
    EXPECT_THAT(lines.back(), HasSubstr("heartbeats of host 0 come again after "));
    if (end == 100s) {
      EXPECT_THAT(lines.front(), HasSubstr("for 2.1 s: the host"));
      EXPECT_THAT(lines.back(), HasSubstr("after 40.0 s"));
    }
  }
}

TEST(LostHosts, OfAShortLossPeopleHearNothing) {
  LostHosts hosts = hosts_of(1);
  EXPECT_THAT(hosts.note(all_lost(1), kBegin + 400ms), IsEmpty());
  EXPECT_TRUE(hosts.loss_of(0).has_value());
  hosts.hear(0, kBegin + 900ms);
  EXPECT_THAT(hosts.note({}, kBegin + 900ms), IsEmpty());
  EXPECT_FALSE(hosts.loss_of(0).has_value());
}

// A network may carry the greeting, and nothing that is longer.
TEST(LostHosts, AHostIsBackOnceItIsHeard) {
  LostHosts hosts = hosts_of(1);
  EXPECT_EQ(hosts.note(all_lost(1), kBegin + 2s).size(), 1U);
  EXPECT_THAT(hosts.note({}, kBegin + 3s), IsEmpty());
  EXPECT_TRUE(hosts.loss_of(0).has_value());
  EXPECT_THAT(hosts.note(all_lost(1), kBegin + 4s), IsEmpty()) << "no other loss";
  hosts.hear(0, kBegin + 5s);
  EXPECT_EQ(hosts.note({}, kBegin + 5s).size(), 1U);
  EXPECT_FALSE(hosts.loss_of(0).has_value());
}

TEST(LostHosts, HostsThatAreLostTogetherHaveALine) {
  LostHosts hosts = hosts_of(7);
  EXPECT_THAT(
      hosts.note(all_lost(7), kBegin + 2s),
      ElementsAre(AllOf(HasSubstr("of host 0, host 1, host 2, host 3, and 3 more hosts have"),
                        Not(HasSubstr("host 4")))));
}

TEST(LostHosts, OfAnEndAndOfAHostThatHasLeftOthersTell) {
  LostHosts hosts = hosts_of(2);
  hosts.leave(1);
  for (const auto now : {kBegin + 2s, kBegin + 3s}) {
    EXPECT_THAT(hosts.note({{0, PeerLoss::ended}, {1, PeerLoss::reset}}, now), IsEmpty());
  }
  EXPECT_EQ(hosts.loss_of(0), PeerLoss::ended);
  EXPECT_EQ(hosts.loss_of(1), PeerLoss::reset);
}

// What is between the hosts may end a connection, and refuse others for a moment.
TEST(LostHosts, AnEndIsBelievedOnceItHasLasted) {
  LostHosts hosts = hosts_of(1);
  const LostHosts::Losses ended{{0, PeerLoss::ended}};
  hosts.note(ended, kBegin);
  hosts.note(ended, kBegin + 399ms);
  EXPECT_EQ(hosts.loss_of(0), std::nullopt);
  hosts.note({}, kBegin + 400ms);
  hosts.note(ended, kBegin + 500ms);
  EXPECT_EQ(hosts.loss_of(0), std::nullopt) << "it was back in between";
  hosts.note({{0, PeerLoss::reset}}, kBegin + 600ms);
  EXPECT_EQ(hosts.loss_of(0), PeerLoss::reset) << "of this its finder decides";
  hosts.hear(0, kBegin + 700ms);
  hosts.note(ended, kBegin + 700ms);
  hosts.note(ended, kBegin + 1099ms);
  EXPECT_EQ(hosts.loss_of(0), std::nullopt) << "a loss of another kind does not count";
  hosts.note(ended, kBegin + 1100ms);
  EXPECT_EQ(hosts.loss_of(0), PeerLoss::ended);
}

}  // namespace
}  // namespace zero
