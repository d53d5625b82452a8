// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Watchdogs of hosts that see each other. Ranks are threads; one machine stands for all hosts.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/host.h"
#include "collectives/backends.h"
#include "launch/flight/flight_file.h"
#include "launch/watch/process_faults.h"
#include "launch/watch/run_faults.h"
#include "tests/launch/hub_network.h"
#include "tests/launch/watched_ranks.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Matcher;
using ::testing::SizeIs;
using ::testing::StartsWith;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Ranks of these hosts in a step, with their watchdogs.
void watched(ToldByWatchdogs& told, const std::vector<std::string>& keys,
             const std::function<void(WatchedRank&)>& body) {
  local::run(static_cast<int>(keys.size()), [&](Communicator& world) {
    WatchedRank rank(world, told.options(keys[static_cast<std::size_t>(world.rank())]));
    EXPECT_THAT(rank.watchdog->obstacle(), IsEmpty());
    EXPECT_THAT(rank.watchdog->warning(), IsEmpty());
    rank.watchdog->watch();
    body(rank);
    if (rank.watchdog) rank.watchdog->rest();
    all_meet(world);
  });
}

// Nobody of its host waits for it.
TEST(HostWatchdogs, ARankThatHangsAloneOnItsHostIsNamedOnceAndBothHostsEnd) {
  for (const std::vector<std::string>& keys :
       {std::vector<std::string>{"a", "a", "b"}, {"a", "b", "b"}}) {
    const int hung = keys[1] == "a" ? 2 : 0;
    ToldByWatchdogs told;
    watched(told, keys, [&](WatchedRank& rank) {
      if (rank.number() != hung) rank.enter();
      wait_until([&] { return told.ends >= 2; });
    });
    EXPECT_THAT(told.texts,
                ElementsAre(AllOf(HasSubstr("rank " + std::to_string(hung) +
                                            " has not entered barrier(h.7) #1 of group world"),
                                  HasSubstr("(rank " + std::to_string(hung) + " on host "))));
  }
}

TEST(HostWatchdogs, AHostTellsOfItsOwnHangAndTheOtherEndsInSilence) {
  ToldByWatchdogs told;
  watched(told, {"a", "a", "b", "b"}, [&](WatchedRank& rank) {
    if (rank.number() != 3) rank.enter();
    wait_until([&] { return told.ends >= 2; });
  });
  EXPECT_THAT(told.texts, ElementsAre(HasSubstr("rank 3 has not entered barrier(h.7)")));
}

TEST(HostWatchdogs, ALossIsToldOnceAndEndsTheOtherHosts) {
  ToldByWatchdogs told;
  watched(told, {"a", "b", "c"}, [&](WatchedRank& rank) {
    if (rank.number() == 2) rank.watchdog.reset();
    wait_until([&] { return told.ends >= 2; });
  });
  EXPECT_THAT(told.texts, ElementsAre(HasSubstr("rank 2 ended without a word")));
}

// Killed with a request unread it resets its connections, which looks from elsewhere like a cut.
TEST(HostWatchdogs, OfTheHubsDeathEachHostTellsOnceItsRanksWait) {
  for (const bool resets : {false, true}) {
    ToldByWatchdogs told{.may_warn = true};
    Clock::time_point killed{};
    watched(told, {"a", "b", "c"}, [&](WatchedRank& rank) {
      std::this_thread::sleep_for(600ms);  // heartbeats
      all_meet(rank.world);
      if (rank.number() == 0) {
        const HubNetwork network;
        if (resets) network.reset_at_end(network.connections());
        killed = Clock::now();
        rank.watchdog.reset();
      } else {
        rank.enter();
      }
      wait_until([&] { return told.ends >= 2; });
    });
    EXPECT_LT(Clock::now() - killed, 6s) << "1.5 s where cores are free";
    EXPECT_THAT(told.texts, SizeIs(2)) << "they hear of no other";
    Matcher<std::string> words =
        AllOf(HasSubstr("rank 0 does not answer"), HasSubstr("was reset, and has not come back"));
    // The end may come between a request and its answer.
    if (!resets) words = AnyOf(HasSubstr("rank 0 ended without a word"), words);
    EXPECT_THAT(told.texts, Each(words));
  }
}

// The reset itself is no fault.
TEST(HostWatchdogs, AHangBehindAResetOfAllLinksIsNamed) {
  ToldByWatchdogs told{.may_warn = true};
  watched(told, {"a", "a", "b"}, [&](WatchedRank& rank) {
    std::this_thread::sleep_for(600ms);  // heartbeats
    if (rank.number() == 0) {
      const HubNetwork network;
      network.reset(network.connections());
    }
    std::this_thread::sleep_for(2s);
    EXPECT_EQ(told.ends.load(), 0);
    if (rank.number() != 2) rank.enter();
    wait_until([&] { return told.ends >= 2; });
  });
  EXPECT_THAT(told.texts, ElementsAre(HasSubstr("rank 2 has not entered barrier(h.7) #1")));
}

// An end of another rank might have a launcher end this one before it has told people.
TEST(HostWatchdogs, AnErrorOfOneHostsOwnEndsTheOthersInSilenceOnceItIsTold) {
  ToldByWatchdogs told;
  std::atomic<bool> left{false};
  watched(told, {"a", "b", "c"}, [&](WatchedRank& rank) {
    if (rank.number() == 1) {
      EXPECT_TRUE(rank.watchdog->leave_words(error_words("no room on the disk")));
      left = true;
      std::this_thread::sleep_for(1500ms);
      EXPECT_EQ(told.ends.load(), 0) << "it may not have told people yet";
      rank.watchdog.reset();
    } else {
      wait_until([&] { return left.load(); });
      rank.enter();
    }
    wait_until([&] { return told.ends >= 2; });
  });
  EXPECT_THAT(told.texts, IsEmpty());
}

// Who hears the hub sees its end, and must have heard why.
TEST(HostWatchdogs, AnErrorOfTheHubIsHeardBeforeItEnds) {
  ToldByWatchdogs told;
  watched(told, {"a", "b", "c"}, [&](WatchedRank& rank) {
    if (rank.number() == 0) {
      EXPECT_TRUE(rank.watchdog->leave_words(error_words("no room on the disk")));
      rank.watchdog.reset();
    }
    wait_until([&] { return told.ends >= 2; });
  });
  EXPECT_THAT(told.texts, IsEmpty());
}

// Ranks that are sent the same signal then tell of that, and of no fault.
TEST(HostWatchdogs, WhoTellsOfARankThatASignalHasEndedSaysSo) {
  ToldByWatchdogs told;
  watched(told, {"a", "b"}, [&](WatchedRank& rank) {
    if (rank.number() == 1) {
      EXPECT_TRUE(rank.watchdog->leave_words(signal_words()));
      std::this_thread::sleep_for(1s);  // a heartbeat
      rank.watchdog.reset();
    } else {
      wait_until([&] { return told.ends != 0; });
      EXPECT_EQ(rank.reader.read().last_words.kind, LastWords::Kind::signal_finding);
    }
  });
  EXPECT_THAT(told.texts, ElementsAre(HasSubstr("rank 1 ended by SIGTERM")));
}

TEST(HostWatchdogs, AnErrorOfARanksOwnNamesItsHostBehindTheFirstLine) {
  ToldByWatchdogs told;
  watched(told, {"a", "b"}, [](WatchedRank& rank) {
    EXPECT_EQ(rank.watchdog->in_full("no room\nread this"),
              fmt::format("no room (rank {} on host {})\nread this", rank.number(), host_name()));
    const std::string another_ones = "[rank 0] barrier(h.7): rank 1 left";
    EXPECT_EQ(rank.watchdog->in_full(another_ones), another_ones);
  });
}

TEST(HostWatchdogs, OfAWaitThatTookTooLongTheRankThatSeesMostIsTheFirstToTell) {
  const std::vector<std::chrono::milliseconds> expected{0ms, 4000ms, 2500ms, 3000ms, 5000ms};
  ToldByWatchdogs told;
  watched(told, {"a", "a", "b", "c", "c"}, [&](WatchedRank& rank) {
    EXPECT_EQ(rank.watchdog->patience_with_others(),
              expected[static_cast<std::size_t>(rank.number())])
        << rank.number();
  });
}

// Rank 2 sees no rank but those of its own host, which have come.
TEST(HostWatchdogs, OfAWaitForARankThatIsNotSeenTheHostOfTheFirstAbsentOneIsNamed) {
  ToldByWatchdogs told;
  watched(told, {"a", "b", "b"}, [](WatchedRank& rank) {
    if (rank.number() != 0) rank.enter();
    all_meet(rank.world);
    if (rank.number() != 2) return;
    const auto words_of = [&](const std::string& absent) {
      return rank.watchdog->in_full(fmt::format(
          "[rank 2] barrier(h.7): waiting for 30 s for {}, the timeout of collectives", absent));
    };
    EXPECT_THAT(words_of("rank 0 (a thread)"),
                HasSubstr("collectives (rank 0 on host " + host_name() + ")\n"));
    EXPECT_THAT(words_of("rank 0 (on host far: unknown) and rank 7 (a thread)"),
                HasSubstr("collectives (rank 0 on host far)\n"));
    EXPECT_THAT(words_of("rank 7 (a thread)"), HasSubstr("collectives\n")) << "of no job";
  });
}

// All ranks reach the limit at one time. Neither rank 1 nor rank 2, the first of its host, sees the
// host of rank 4.
TEST(HostWatchdogs, OfAWaitThatTookTooLongTheHubTellsWithWhereTheAbsentRankIs) {
  constexpr int kAbsent = 4;
  const std::vector<std::string> keys{"a", "a", "b", "c", "c"};
  const int ranks = static_cast<int>(keys.size());
  ToldByWatchdogs told;
  std::mutex mutex;
  std::vector<std::string> texts;  // in the order of telling
  const auto all_have_told = [&] {
    const std::scoped_lock lock(mutex);
    return static_cast<int>(texts.size()) == ranks - 1;
  };
  local::run(ranks, [&](Communicator& world) {
    FlightFile file = FlightFile::create("", world.rank(), ranks);
    file.phase(-1, "start");
    if (world.rank() != kAbsent) enter_barrier(file, add_world(file, ranks));
    RunFaults faults(world, std::move(file),
                     told.options(keys[static_cast<std::size_t>(world.rank())]));
    std::this_thread::sleep_for(1s);  // heartbeats
    all_meet(world);
    if (world.rank() != kAbsent) {
      std::string text = faults.failing(Error(
          fmt::format("[rank {}] barrier(h.7): waiting for 30 s for rank {} (unknown), the timeout "
                      "of collectives; find out what holds it up",
                      world.rank(), kAbsent)));
      const std::scoped_lock lock(mutex);
      texts.push_back(std::move(text));
    }
    wait_until(all_have_told);
    all_meet(world);
  });
  ASSERT_FALSE(texts.empty());
  EXPECT_THAT(texts.front(),
              AllOf(StartsWith("[rank 0] barrier(h.7): waiting for 30 s for rank 4"),
                    HasSubstr("what holds it up (rank 4 on host " + host_name() + ")\n"),
                    ContainsRegex(
                        "rank 4 was last seen [0-9.]+ m?s ago in .start. before the first step")));
}

TEST(HostWatchdogs, TheFirstProcessAloneSaysForWhichRankOfAnotherHostRanksWait) {
  ToldByWatchdogs told{.may_warn = true};
  local::run(2, [&](Communicator& world) {
    FlightFile file = FlightFile::create("", world.rank(), 2);
    file.phase(-1, "start");
    if (world.rank() == 0) {
      file.started(enter_barrier(file, add_world(file, 2)), FlightFile::now() - 4'000'000'000);
    }
    RunFaults faults(world, std::move(file), told.options(world.rank() == 0 ? "a" : "b"));
    ProcessFaults process("zero_train", world.rank());
    const ProcessFaults::Joined joined(process, faults);
    std::string line;
    // It has heard of the other host by then.
    wait_until([&] {
      line = faults.waits();
      return line.find(world.rank() == 0 ? "was last seen" : "which is in") != line.npos;
    });
    EXPECT_THAT(line,
                ContainsRegex("^rank 0 has waited for [0-9.]+ s for rank 1, which [a-z0-9. ]+ "
                              "in .start. before the first step .rank 1 on host "));
    if (world.rank() == 0) {
      EXPECT_THAT(process.waits(), StartsWith("rank 0 has waited for "));
    } else {
      EXPECT_THAT(process.waits(), IsEmpty());
    }
    all_meet(world);
  });
  EXPECT_THAT(told.texts, IsEmpty());
}

TEST(HostWatchdogs, AGoodEndIsNoFault) {
  for (const int first : {0, 1}) {
    ToldByWatchdogs told;
    watched(told, {"a", "b"}, [&](WatchedRank& rank) {
      std::this_thread::sleep_for(600ms);
      if (rank.number() != first) std::this_thread::sleep_for(1s);
      rank.watchdog->leave();
      rank.file.end();
      rank.watchdog.reset();
    });
    EXPECT_EQ(told.ends.load(), 0);
    EXPECT_THAT(told.texts, IsEmpty());
  }
}

}  // namespace
}  // namespace zero::testing
