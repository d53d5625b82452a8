// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Hosts that see each other by heartbeats. Ranks are threads; one machine stands for all hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "collectives/backends.h"
#include "launch/flight/flight_file.h"
#include "launch/watch/host_connection.h"
#include "launch/watch/host_peers.h"
#include "launch/watch/job_ranks.h"
#include "tests/launch/flight_states.h"
#include "tests/launch/hub_network.h"
#include "tests/launch/rank_threads.h"
#include "tests/variable.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

/// A rank as its watchdog has it, with a link but without a watchdog.
struct LinkedRank {
  LinkedRank(Communicator& world, const std::string& key,
             const std::vector<std::string>& addresses = kLoopback)
      : file(FlightFile::create("", world.rank(), world.size())),
        peers(world, *cpu::open(), file, key),
        hosts(connect_hosts(world, *cpu::open(), peers, addresses)),
        ranks(peers, hosts.link.get(), 0) {}

  LinkedRank(const LinkedRank&) = delete;
  LinkedRank& operator=(const LinkedRank&) = delete;
  ~LinkedRank() { hosts.link.reset(); }  // its thread uses the ranks

  /// `warn`: for a test that loses links, or has them lost on a slow machine.
  void start(const std::function<void(const std::string&)>& warn = [](const std::string& text) {
    ADD_FAILURE() << text;
  }) {
    if (!hosts.link) return;
    hosts.link->start([this](bool hurry) { return ranks.heartbeat(FlightFile::now(), hurry); },
                      warn);
  }
  std::shared_ptr<const Heartbeat> heard(int host) const {
    return hosts.link->heard(host).heartbeat;
  }
  /// Looks until that holds.
  void look_until(const std::function<bool()>& holds) {
    wait_until([&] {
      ranks.look(FlightFile::now());
      return holds();
    });
  }

  FlightFile file;
  HostPeers peers;
  HostConnection hosts;
  JobRanks ranks;
};

/// Runs `body` on the rank of each of these hosts, threads of this process; links that it leaves
/// end well.
void on_hosts(const std::vector<std::string>& keys,
              const std::function<void(Communicator&, LinkedRank&)>& body,
              const std::vector<std::string>& addresses = kLoopback) {
  local::run(static_cast<int>(keys.size()), [&](Communicator& world) {
    const std::string& key = keys[static_cast<std::size_t>(world.rank())];
    LinkedRank rank(world, key, addresses);
    body(world, rank);
    all_meet(world);
    if (rank.hosts.link) rank.hosts.link->leave();
  });
}

TEST(HostLinks, TheHubHearsAllAndTheOthersHearTheHub) {
  on_hosts({"a", "a", "b", "c"}, [](Communicator& world, LinkedRank& self) {
    EXPECT_THAT(self.hosts.warning, IsEmpty());
    self.file.phase(7, "backward");
    all_meet(world);
    self.start();
    EXPECT_EQ(self.hosts.link == nullptr, world.rank() == 1);
    if (self.hosts.link) {
      EXPECT_EQ(self.hosts.link->is_hub(), world.rank() == 0);
      const std::vector<int> expected =
          world.rank() == 0 ? std::vector<int>{1, 2} : std::vector<int>{0};
      EXPECT_EQ(self.hosts.link->heard_hosts(), expected);
      for (const int host : expected) {
        wait_until([&] { return self.heard(host) != nullptr; });
        EXPECT_EQ(self.heard(host)->ranks.size(), host == 0 ? 2U : 1U);
      }
      self.look_until([&] { return self.ranks.read(self.ranks.count_here()).phase == "backward"; });
      EXPECT_EQ(self.ranks.count(), world.rank() == 0 ? 4 : 3);
      EXPECT_EQ(self.ranks.rank(self.ranks.count() - 1), world.rank() == 0 ? 3 : 1);
      EXPECT_EQ(self.ranks.decides_for_all(), world.rank() == 0);
    }
  });
}

TEST(HostLinks, OnOneHostNobodyListens) {
  on_hosts({"a", "a"}, [](Communicator&, LinkedRank& self) {
    EXPECT_EQ(self.hosts.link, nullptr);
    EXPECT_THAT(self.hosts.warning, IsEmpty());
    EXPECT_EQ(self.ranks.count(), 2);
  });
}

TEST(HostLinks, AnAddressThatDoesNotAnswerIsNotTheLast) {
  on_hosts({"a", "b"},
           [](Communicator& world, LinkedRank& self) {
             EXPECT_THAT(self.hosts.warning, IsEmpty());
             ASSERT_NE(self.hosts.link, nullptr);
             self.start();
             wait_until([&] { return self.heard(1 - world.rank()) != nullptr; });
           },
           {"127.0.0.1", "192.0.2.1"});
}

TEST(HostLinks, ALinkThatEndsWithoutAGoodbyeIsALoss) {
  for (const int lost : {0, 1}) {
    on_hosts({"a", "b"}, [&](Communicator& world, LinkedRank& self) {
      self.start();
      wait_until([&] { return self.heard(1 - world.rank()) != nullptr; });
      all_meet(world);
      if (world.rank() == lost) {
        self.hosts.link.reset();
      } else {
        // A hub that ends between a request and its answer resets its connection.
        self.look_until([&] {
          return self.ranks.ended(1) || self.hosts.link->heard(lost).loss == PeerLoss::reset;
        });
        EXPECT_TRUE(lost == 0 || self.ranks.ended(1));
        if (self.ranks.ended(1)) {
          EXPECT_THAT(self.ranks.end_of(1), HasSubstr("ended without a word"));
        }
      }
    });
  }
}

// More of these: LinksThatReturn.
TEST(HostLinks, ALinkThatIsResetComesBack) {
  on_hosts({"a", "b"}, [](Communicator& world, LinkedRank& self) {
    self.start([](const std::string&) {});
    wait_until([&] { return self.heard(1 - world.rank()) != nullptr; });
    all_meet(world);
    if (world.rank() == 0) {
      const HubNetwork network;
      network.reset(network.connections());
    }
    all_meet(world);
    const std::int64_t now = FlightFile::now();
    wait_until([&] {
      const HeartbeatLink::Heard heard = self.hosts.link->heard(1 - world.rank());
      return !heard.loss && heard.heartbeat->now > now;
    });
  });
}

// More of these: HubConnection.
TEST(HostLinks, ALinkWhoseAddressIsGoneComesBackByAnother) {
  constexpr in_addr_t kSecondLoopback = 0x7F000002;
  on_hosts({"a", "b"},
           [](Communicator& world, LinkedRank& self) {
             ASSERT_NE(self.hosts.link, nullptr) << self.hosts.warning;
             self.start([](const std::string&) {});
             wait_until([&] { return self.heard(1 - world.rank()) != nullptr; });
             all_meet(world);
             if (world.rank() == 0) HubNetwork().remove(kSecondLoopback);
             all_meet(world);
             wait_until([&] { return self.hosts.link->heard(1 - world.rank()).loss.has_value(); });
             wait_until([&] { return !self.hosts.link->heard(1 - world.rank()).loss; });
           },
           // The first, which does not answer, has the hub listen at all.
           {"192.0.2.1", "127.0.0.2", "127.0.0.3"});
}

// Words that a signal leaves go out before the process ends.
TEST(HostLinks, ALossIsToldWithTheLastWords) {
  on_hosts({"a", "b"}, [](Communicator& world, LinkedRank& self) {
    self.start();
    if (world.rank() == 1) {
      self.file.write_last_words(signal_words());
      self.hosts.link->hurry();
    } else {
      self.look_until([&] { return self.ranks.read(1).last_words.is_of_signal(); });
    }
    all_meet(world);
    if (world.rank() == 1) {
      self.hosts.link.reset();
    } else {
      self.look_until([&] { return self.ranks.ended(1); });
      EXPECT_EQ(self.ranks.end_of(1), "ended by SIGTERM");
    }
  });
}

TEST(HostLinks, AGoodEndIsNoLossWhoeverEndsFirst) {
  for (const int first : {0, 1}) {
    on_hosts({"a", "b", "c"}, [&](Communicator& world, LinkedRank& self) {
      self.start();
      all_meet(world);
      if (world.rank() == first) self.hosts.link->leave();
      all_meet(world);
      if (world.rank() == first) {
        self.hosts.link.reset();
      } else if (first == 0 || world.rank() == 0) {
        wait_until([&] {
          const auto last = self.heard(first);
          return last && last->leaves;
        });
      }
      all_meet(world);
      if (self.hosts.link) {
        self.ranks.look(FlightFile::now());
        for (int i = 0; i < self.ranks.count(); ++i) EXPECT_FALSE(self.ranks.ended(i)) << i;
      }
    });
  }
}

// As in a job that is stopped as a whole.
TEST(HostLinks, TimeInWhichNobodyLooksIsNoSilence) {
  constexpr std::int64_t kOneSecond = 1'000'000'000;
  on_hosts({"a", "b"}, [](Communicator& world, LinkedRank& self) {
    ASSERT_NE(self.hosts.link, nullptr);  // none begins
    self.ranks.look(kOneSecond);
    self.ranks.look(61 * kOneSecond);
    EXPECT_FALSE(self.ranks.is_silent(1));
    for (int tenth = 2; tenth <= 10; tenth += 2)
      self.ranks.look(61 * kOneSecond + tenth * kOneSecond / 10);
    EXPECT_TRUE(self.ranks.is_silent(1));
    EXPECT_THAT(self.ranks.read(1).process_state, HasSubstr("no sign of life for 1.4 s"));
    all_meet(world);
    self.hosts.link.reset();
  });
}

TEST(HostLinks, TimesOfAnotherHostAreOnItsOwnClock) {
  on_hosts({"a", "b"}, [](Communicator& world, LinkedRank& self) {
    Heartbeat beat{.now = 5'000'000'000};
    beat.ranks.push_back({.changed = 4'000'000'000, .state = FlightState{}});
    FlightState& state = *beat.ranks.front().state;
    state.open.push_back({.name = "h.0", .group = "world", .ranks = {0, 1}, .number = 1});
    state.open.front().enqueued = 3'000'000'000;
    self.hosts.link->start([beat](bool) { return beat; },
                           [](const std::string& text) { ADD_FAILURE() << text; });
    wait_until([&] { return self.heard(1 - world.rank()) != nullptr; });
    self.ranks.look(100'000'000'000);
    const FlightState seen = self.ranks.read(1);
    EXPECT_EQ(seen.changed, 99'000'000'000);
    EXPECT_EQ(seen.seen, 100'000'000'000) << "this moment";
    ASSERT_EQ(seen.open.size(), 1U);
    EXPECT_EQ(seen.open.front().enqueued, 98'000'000'000);
    EXPECT_EQ(seen.open.front().started, 0) << "not yet";
  });
}

// Each rank of a large job names all others, and the hub copies the states of all ranks.
TEST(HostLinks, EqualListsOfRanksAreKeptOnce) {
  on_hosts({"a", "b", "b"}, [](Communicator& world, LinkedRank& self) {
    Heartbeat beat{.now = 1};
    for (const int rank : self.peers.hosts().ranks_of(self.peers.host())) {
      beat.ranks.push_back({.changed = 1, .state = FlightState{}});
      beat.ranks.back().state->open = {{.name = "x", .group = "world", .ranks = {0, 1, 2}},
                                       {.name = "y", .group = "host", .ranks = {rank}}};
    }
    if (self.hosts.link) {
      self.hosts.link->start([beat](bool) { return beat; },
                             [](const std::string& text) { ADD_FAILURE() << text; });
    }
    if (world.rank() == 0) {
      wait_until([&] { return self.heard(1) != nullptr; });
      self.ranks.look(FlightFile::now());
      const auto one = self.ranks.read(1).open.at(0).ranks;
      const auto other = self.ranks.read(2).open.at(0).ranks;
      EXPECT_THAT(one, ElementsAre(0, 1, 2));
      EXPECT_EQ(&one.all(), &other.all());
      EXPECT_THAT(self.ranks.read(1).open.at(1).ranks, ElementsAre(1));
      EXPECT_THAT(self.ranks.read(2).open.at(1).ranks, ElementsAre(2));
    }
  });
}

// Its silence is none of the host.
TEST(HostLinks, ALinkThatCannotGoOnIsNoFault) {
  for (const int failing : {0, 1}) {
    on_hosts({"a", "b"}, [&](Communicator& world, LinkedRank& self) {
      std::atomic<int> warnings{0};
      std::atomic<bool> fails{false};
      self.hosts.link->start(
          [&](bool hurry) {
            if (fails) fail("out of memory");
            return self.ranks.heartbeat(FlightFile::now(), hurry);
          },
          [&](const std::string& text) {
            EXPECT_THAT(text, HasSubstr("other hosts are seen no more: out of memory"));
            ++warnings;
          });
      wait_until([&] { return self.heard(1 - world.rank()) != nullptr; });
      all_meet(world);
      fails = world.rank() == failing;
      wait_until([&] { return self.heard(1 - world.rank())->leaves; });
      self.ranks.look(FlightFile::now());
      EXPECT_TRUE(self.ranks.read(1).over);
      EXPECT_FALSE(self.ranks.ended(1));
      EXPECT_FALSE(self.ranks.is_silent(1));
      all_meet(world);
      EXPECT_EQ(warnings.load(), world.rank() == failing ? 1 : 0);
      self.hosts.link.reset();  // uses what is here
    });
  }
}

TEST(HostLinks, WhatOneHostHasToldAllOthersHear) {
  for (const int teller : {0, 2}) {
    on_hosts({"a", "b", "c"}, [&](Communicator& world, LinkedRank& self) {
      self.start();
      all_meet(world);
      const Heartbeat::Told told{.rank = teller, .host = "somewhere", .of_signal = false};
      if (world.rank() == teller) {
        self.hosts.link->tell(told);
        EXPECT_EQ(self.hosts.link->told(), std::nullopt) << "it need not hear of itself";
      } else {
        wait_until([&] { return self.hosts.link->told() == told; });
      }
    });
  }
}

TEST(HostLinks, TheJobsSecretIsTheirs) {
  const Variable secret("ZERO_JOB_SECRET=a secret of this test alone");
  on_hosts({"a", "b"}, [](Communicator& world, LinkedRank& self) {
    ASSERT_NE(self.hosts.link, nullptr) << self.hosts.warning;
    self.start();
    wait_until([&] { return self.heard(1 - world.rank()) != nullptr; });
  });
}

TEST(HostLinks, HostsThatCannotBeLinkedAreAWarningOfAllRanks) {
  const Variable secret("ZERO_JOB_SECRET=short");
  on_hosts({"a", "b", "b"}, [](Communicator&, LinkedRank& self) {
    EXPECT_EQ(self.hosts.link, nullptr);
    EXPECT_THAT(self.hosts.warning,
                AllOf(HasSubstr("do not watch each other"), HasSubstr("ZERO_JOB_SECRET"),
                      HasSubstr("the job's secret has 5 bytes"), HasSubstr("rank 0")));
    EXPECT_EQ(self.ranks.count(), self.peers.count());
  });
}

}  // namespace
}  // namespace zero::testing
