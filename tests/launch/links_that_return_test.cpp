// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Links of hosts that are cut, and come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "launch/flight/flight_file.h"
#include "launch/watch/job_ranks.h"
#include "tests/launch/fake_ranks.h"
#include "tests/launch/linked_hosts.h"
#include "tests/launch/store_job.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Lt;
using namespace std::chrono_literals;
using Clock = LinkedHosts::Clock;

constexpr int kRankOfB = LinkedHosts::kRanksOfHub;

/// What the hub's first rank finds. Its host's ranks are in the middle of a step; none hangs for a
/// minute.
class HubLooks {
 public:
  explicit HubLooks(LinkedHosts& hosts) : ranks_(here_, &hosts.link(0), kHangSeconds) {}

  /// Its host's ranks have entered a collective with the first rank of host b.
  void wait_for_b() {
    for (int i = 0; i < here_.count(); ++i) here_.at(i).open = {collective(5, {0, 1, 2, 3, 4})};
  }
  void go_on() {
    for (int i = 0; i < here_.count(); ++i) ++here_.at(i).changed;
  }
  Finding once() {
    std::this_thread::sleep_for(std::chrono::nanoseconds(FaultFinder::kBetweenLooks));
    const std::int64_t now = FlightFile::now();
    ranks_.look(now);
    return finder_.look(now);
  }
  Finding during(std::chrono::milliseconds time) {
    Finding found;
    const Clock::time_point end = Clock::now() + time;
    while (Clock::now() < end && found.what == Finding::What::nothing) found = once();
    return found;
  }
  const JobRanks& ranks() const { return ranks_; }

 private:
  static constexpr double kHangSeconds = 60;

  FakeRanks here_{};
  JobRanks ranks_;
  FaultFinder finder_{ranks_, kHangSeconds};
};

std::chrono::milliseconds time_of(const std::function<void()>& work) {
  const Clock::time_point begin = Clock::now();
  work();
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
}

// A slow step behind it is no death.
TEST(LinksThatReturn, ALinkThatIsCutComesBackAndBothHostsAreSeenAsBefore) {
  LinkedHosts hosts(2);
  HubLooks looks(hosts);
  hosts.network().cut(hosts.sockets(1));
  wait_until([&] {
    looks.go_on();
    EXPECT_EQ(looks.once().what, Finding::What::nothing);
    return looks.ranks().is_cut_off(kRankOfB) && hosts.loss(1, 0) == PeerLoss::unreachable;
  });
  wait_until([&] { return !hosts.lines(0).empty() && !hosts.lines(1).empty(); });
  EXPECT_THAT(hosts.lines(0),
              ElementsAre(AllOf(HasSubstr("heartbeats of host b (rank 4) have been missing for"),
                                HasSubstr("the run goes on"))));
  EXPECT_THAT(hosts.lines(1),
              ElementsAre(HasSubstr("heartbeats of host a (ranks 0-3) have been missing for")));
  hosts.network().restore();
  hosts.wait_until_linked(1);
  looks.go_on();
  EXPECT_EQ(looks.once().what, Finding::What::nothing);
  EXPECT_FALSE(looks.ranks().is_cut_off(kRankOfB));
  looks.wait_for_b();
  EXPECT_EQ(looks.during(2s).what, Finding::What::nothing);
  EXPECT_FALSE(looks.ranks().is_silent(kRankOfB));
  for (const int host : {0, 1}) {
    wait_until([&] { return hosts.lines(host).size() == 2; });
    EXPECT_THAT(hosts.lines(host).back(), HasSubstr("come again after"));
  }
}

TEST(LinksThatReturn, ACutLinkForWhichRanksWaitIsADeath) {
  LinkedHosts hosts(2);
  HubLooks looks(hosts);
  looks.wait_for_b();
  hosts.network().cut(hosts.sockets(1));
  Finding found;
  EXPECT_THAT(time_of([&] { found = looks.during(20s); }).count(), Lt(10'000));
  EXPECT_EQ(found.what, Finding::What::death);
  EXPECT_THAT(found.culprits, ElementsAre(kRankOfB));
  EXPECT_THAT(looks.ranks().end_of(kRankOfB), HasSubstr("neither does its host (rank 4)"));
}

// They have waited for longer than a host may be lost for which ranks wait.
TEST(LinksThatReturn, AResetWhileRanksWaitIsNoDeath) {
  LinkedHosts hosts(2);
  HubLooks looks(hosts);
  looks.wait_for_b();
  EXPECT_EQ(looks.during(1500ms).what, Finding::What::nothing);
  for (int i = 0; i < 5; ++i) {
    hosts.network().reset(hosts.connections());
    EXPECT_EQ(looks.during(600ms).what, Finding::What::nothing);
    hosts.wait_until_linked(1);
  }
}

TEST(LinksThatReturn, OfAHubThatLostItsNetworkAllLinksComeBack) {
  LinkedHosts hosts(4);
  hosts.network().cut(hosts.all_sockets());
  for (const int host : {1, 2, 3}) hosts.wait_until_lost(host);
  hosts.network().restore();
  for (const int host : {1, 2, 3}) hosts.wait_until_linked(host);
  for (const int host : {1, 2, 3}) {
    wait_until([&] { return hosts.lines(host).size() == 2; });
  }
}

TEST(LinksThatReturn, OneHostsLossIsNoneOfTheOthers) {
  LinkedHosts hosts(3);
  hosts.network().cut(hosts.sockets(2));
  hosts.wait_until_lost(2);
  hosts.wait_until_linked(1);
  EXPECT_THAT(hosts.lines(1), IsEmpty());
  hosts.network().restore();
  hosts.wait_until_linked(2);
}

// As by a firewall that starts again.
TEST(LinksThatReturn, ResetsLeaveNothingBehindHoweverMany) {
  LinkedHosts hosts(3);
  const std::size_t before = HubNetwork::descriptors();
  for (int i = 0; i < 5; ++i) {
    hosts.network().reset(hosts.connections());
    for (const int host : {1, 2}) hosts.wait_until_linked(host);
  }
  wait_until([&] { return HubNetwork::descriptors() == before; });
}

TEST(LinksThatReturn, AHostThatIsBackAndEndsIsLost) {
  LinkedHosts hosts(2);
  hosts.network().reset(hosts.connections());
  hosts.wait_until_linked(1);
  hosts.end(1);
  wait_until([&] { return hosts.loss(0, 1).has_value(); });
}

TEST(LinksThatReturn, AHostThatIsBackAndLeavesIsNoLoss) {
  LinkedHosts hosts(2);
  hosts.network().reset(hosts.connections());
  hosts.wait_until_linked(1);
  hosts.link(1).leave();
  wait_until([&] { return hosts.link(0).heard(1).heartbeat->leaves; });
  hosts.end(1);
  std::this_thread::sleep_for(600ms);
  EXPECT_EQ(hosts.loss(0, 1), std::nullopt);
}

/// How the hub answers a process that knows the secret and says that it is this rank of the store.
std::string answer_to(const StoreOptions& options, const std::vector<std::string>& hello) {
  StoreConnection connection(options, LinkedHosts::soon());
  return connection.ask(hello, LinkedHosts::soon()).at(0);
}

TEST(LinksThatReturn, NobodyElseTakesAHostsPlace) {
  LinkedHosts hosts(3);
  StoreOptions of_another_run = hosts.options_of(1);
  of_another_run.job = "another run";
  const auto nobody_may = [&] {
    EXPECT_EQ(answer_to(hosts.options_of(1), {"hello"}), "refused");
    EXPECT_EQ(answer_to(hosts.options_of(1), {"hello", "another proof"}), "refused");
    EXPECT_EQ(answer_to(hosts.options_of(1), {"hello", "the proof of 2"}), "refused");
    EXPECT_EQ(answer_to(of_another_run, {"hello", "the proof of 1"}), "refused");
  };
  nobody_may();
  hosts.wait_until_linked(1);
  wait_until([&] { return !hosts.lines(0).empty(); });
  hosts.network().reset(hosts.connections());
  nobody_may();
  for (const int host : {1, 2}) hosts.wait_until_linked(host);
  std::vector<std::string> refusals = hosts.lines(0);
  std::erase_if(refusals,
                [](const std::string& line) { return line.find("refused") == std::string::npos; });
  EXPECT_THAT(refusals, ElementsAre(AllOf(HasSubstr("was refused as a host's first rank"),
                                          HasSubstr("rank 1 is there already"))));
}

// The hub reads each connection for itself.
TEST(LinksThatReturn, AHelloOfWhichHalfHasComeHoldsUpNobody) {
  LinkedHosts hosts(2);
  const StoreOptions options = hosts.options_of(1);
  ProvenClient slow(options.port);
  EXPECT_THAT(slow.introduce({.rank = 1, .world = 2, .job = options.job}), ElementsAre("ok"));
  slow.send(store_wire::framed({"hello", "the proof of 1"}).substr(0, 9));
  EXPECT_THAT(time_of([&] {
                for (int i = 0; i < 3; ++i) hosts.wait_until_linked(1);
              }).count(),
              Lt(10'000));
  EXPECT_THAT(hosts.lines(0), IsEmpty());
}

TEST(LinksThatReturn, TheEndOfARunDoesNotWaitForALinkThatIsCut) {
  LinkedHosts hosts(3);
  hosts.network().cut(hosts.all_sockets());
  for (const int host : {1, 2}) hosts.wait_until_lost(host);
  for (const int host : {1, 2, 0}) {
    const auto time = time_of([&] {
      if (host != 2) hosts.link(host).leave();
      hosts.link(host).hurry();
      hosts.end(host);
    });
    EXPECT_THAT(time.count(), Lt(1000)) << host;
  }
}

// Something between the hosts may have done all that: JobRanks decides of it.
TEST(LinksThatReturn, AHubWhoseEndResetsItsConnectionsMayBeThere) {
  LinkedHosts hosts(2);
  hosts.network().reset_at_end(hosts.sockets(1));
  hosts.end(0);
  wait_until([&] { return hosts.loss(1, 0).has_value(); });
  const Clock::time_point end = Clock::now() + 1500ms;
  while (Clock::now() < end) {
    EXPECT_EQ(hosts.loss(1, 0), PeerLoss::reset) << "though nobody listens";
    std::this_thread::sleep_for(50ms);
  }
}

// It may have left in good order, and this host could not hear so.
TEST(LinksThatReturn, AHubThatListensNoMoreBehindACutIsNoDeath) {
  LinkedHosts hosts(2);
  hosts.network().cut(hosts.sockets(1));
  hosts.wait_until_lost(1);
  hosts.link(0).leave();
  hosts.end(0);
  std::this_thread::sleep_for(3s);
  EXPECT_EQ(hosts.loss(1, 0), PeerLoss::unreachable);
}

}  // namespace
}  // namespace zero::testing
