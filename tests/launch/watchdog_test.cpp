// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Watchdogs of ranks that are threads of this process.
#include "launch/watch/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "base/sign_of_life.h"
#include "launch/flight/flight_file.h"
#include "tests/launch/watched_ranks.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

TEST(Watchdog, NamesAThreadThatHangsOnceWithItsStack) {
  ToldByWatchdogs told;
  FlightState hung;
  local::run(3, [&](Communicator& world) {
    WatchedRank rank(world, told.options());
    ASSERT_THAT(rank.watchdog->obstacle(), IsEmpty());
    rank.watchdog->know_thread("host thread", ::gettid());
    rank.watchdog->watch();
    if (rank.number() != 1) rank.enter();
    wait_until([&] { return told.ends != 0; });
    if (rank.number() == 1) {
      wait_until([&] { return !(hung = rank.reader.read()).stack.empty(); });
    }
    all_meet(world);
  });
  EXPECT_EQ(told.ends.load(), 1);
  EXPECT_THAT(told.texts, ElementsAre(AllOf(HasSubstr("rank 1 has not entered barrier(h.7) #1"),
                                            HasSubstr("ranks 0, 2 have waited"))));
  EXPECT_THAT(hung.stack, HasSubstr("host thread:\n"));
}

// As a call of a GPU's driver does while another thread is stuck in one.
TEST(Watchdog, LooksWhileWhatKeepsItsFileFreshIsStuck) {
  ToldByWatchdogs told;
  local::run(2, [&](Communicator& world) {
    std::atomic<int> calls{0};
    WatchedRank rank(world, told.options());
    rank.watchdog->keep_fresh([&] {
      ++calls;
      wait_until([&] { return told.ends != 0; });
    });
    rank.watchdog->watch();
    if (rank.number() == 0) rank.enter();
    wait_until([&] { return told.ends != 0 && calls != 0; });
    all_meet(world);
  });
  EXPECT_THAT(told.texts, ElementsAre(HasSubstr("rank 1 has not entered barrier(h.7) #1")));
}

TEST(Watchdog, SaysNothingOfRanksThatGoOn) {
  ToldByWatchdogs told;
  local::run(2, [&](Communicator& world) {
    WatchedRank rank(world, told.options());
    rank.watchdog->watch();
    EXPECT_FALSE(rank.watchdog->takes_over());
    EXPECT_FALSE(rank.watchdog->another_died(0ms));
    for (int i = 0; i < 20; ++i) {
      const auto ticket = rank.enter();
      all_meet(world);
      rank.file.ended(ticket, FlightFile::now());
      std::this_thread::sleep_for(50ms);
    }
    rank.file.end();
    rank.watchdog->rest();
  });
  EXPECT_EQ(told.ends.load(), 0);
  EXPECT_THAT(told.texts, IsEmpty());
}

// Of a disk that does not answer, as other ranks see it.
TEST(Watchdog, ShowsCallsToTheDiskThatGoOn) {
  ToldByWatchdogs told;
  local::run(1, [&](Communicator& world) {
    WatchedRank rank(world, told.options());
    rank.watchdog->watch();
    const std::int64_t published = rank.reader.changed();
    const auto wait_until_shown = [&](bool going_on) {
      wait_until([&] {
        const files::DiskCalls calls = rank.reader.read().disk_calls;
        return calls.begun != 0 && (calls.begun > calls.ended) == going_on;
      });
    };
    {
      const files::DiskCall call;
      wait_until_shown(true);
    }
    wait_until_shown(false);
    EXPECT_EQ(rank.reader.changed(), published) << "the rank itself has done nothing";
  });
}

// A hash of gigabytes, which no record shows.
TEST(Watchdog, PublishesSignsOfLife) {
  ToldByWatchdogs told;
  local::run(1, [&](Communicator& world) {
    WatchedRank rank(world, told.options());
    rank.watchdog->watch();
    std::this_thread::sleep_for(500ms);  // with signs of tests before
    const std::int64_t published = rank.reader.changed();
    std::this_thread::sleep_for(500ms);
    EXPECT_EQ(rank.reader.changed(), published);
    give_sign_of_life();
    wait_until([&] { return rank.reader.changed() > published; });
  });
}

// Else a save that goes on would look like a hang.
TEST(Watchdog, ShowsACallThatDoesNotEndOnceItWatchesNoMore) {
  ToldByWatchdogs told;
  std::atomic<bool> warned{false};
  local::run(1, [&](Communicator& world) {
    WatchdogOptions options = told.options();
    options.warn = [&](const std::string&) { warned = true; };
    options.memory_kills = []() -> std::optional<std::int64_t> {
      throw std::runtime_error("no room");
    };
    WatchedRank rank(world, std::move(options));
    rank.watchdog->watch();
    wait_until([&] { return warned.load(); });
    const files::DiskCalls calls = rank.reader.read().disk_calls;
    EXPECT_EQ(calls.begun, calls.ended + 1);
  });
}

TEST(Watchdog, LeavesTheFirstLastWordsAlone) {
  ToldByWatchdogs told;
  local::run(1, [&](Communicator& world) {
    WatchedRank rank(world, told.options());
    EXPECT_TRUE(rank.watchdog->leave_words(error_words("no room")));
    EXPECT_FALSE(rank.watchdog->leave_words(error_words("another")));
    EXPECT_EQ(rank.reader.read().last_words, error_words("no room"));
  });
}

TEST(Watchdog, OfOneHostNamesNoneInErrors) {
  ToldByWatchdogs told;
  local::run(2, [&](Communicator& world) {
    EXPECT_EQ(WatchedRank(world, told.options()).watchdog->in_full("no room"), "no room");
  });
}

// As people are told who end the job.
TEST(Watchdog, SaysForWhomRanksHaveWaitedForLong) {
  for (const double mean_step : {0.1, 100.0}) {
    ToldByWatchdogs told;
    local::run(2, [&](Communicator& world) {
      WatchedRank rank(world, told.options());
      if (rank.number() == 0) {
        rank.file.mean_step(mean_step);  // the longest of all ranks counts
        rank.file.started(rank.enter(), FlightFile::now() - 4'000'000'000);
      }
      all_meet(world);
      const std::string line = rank.watchdog->waits();
      ZERO_CHECK(mean_step < 1
                     ? line.starts_with("rank 0 has waited for ") &&
                           line.ends_with(" s for rank 1, which is in \"backward\" of step 3")
                     : line.empty(),
                 "of steps of {} s: {}", mean_step, line);
      all_meet(world);
    });
  }
}

TEST(Watchdog, TellsAnErrorThatAnotherFaultHasOutrun) {
  ToldByWatchdogs told;
  local::run(3, [&](Communicator& world) {
    WatchedRank rank(world, told.options());
    Watchdog& watchdog = *rank.watchdog;
    const auto words = [&] { return rank.reader.read().last_words; };
    if (world.rank() == 1) watchdog.know_error("no room");
    if (world.rank() == 2) watchdog.know_error("no disk");
    all_meet(world);
    // Nobody takes one for an error that has been told.
    ZERO_CHECK(!watchdog.another_tells(), "rank {}", world.rank());
    const std::string told_so =
        watchdog.in_full("barrier(h.7): waiting for 2 s for rank 1, the timeout of collectives");
    ZERO_CHECK(
        told_so.find("rank 1 had failed itself: no room\nrank 2 had failed itself: no disk") !=
            std::string::npos,
        "found: {}", told_so);
    all_meet(world);
    if (world.rank() == 1) {
      EXPECT_EQ(words(), outrun_words("no room"));
      watchdog.leave_words(follower_words());
      LastWords both = follower_words();
      both.own_error = "no room";
      EXPECT_EQ(words(), both);
      watchdog.know_error("later");
      EXPECT_EQ(words(), both);
    } else if (world.rank() == 2) {
      watchdog.leave_words(error_words("no disk"));
      EXPECT_EQ(words(), error_words("no disk")) << "it has the message already";
    }
    all_meet(world);
  });
}

TEST(Watchdog, OfAHostWhoseFilesCannotBeReadWatchesNobody) {
  ToldByWatchdogs told;
  const Scratch folder;
  local::run(2, [&](Communicator& world) {
    const std::string path = folder.path(std::to_string(world.rank()));
    FlightFile file = FlightFile::create(path, world.rank(), world.size());
    if (world.rank() == 1) std::filesystem::remove(path);
    if (world.rank() == 0) {
      file.started(enter_barrier(file, add_world(file, 2)), FlightFile::now() - 4'000'000'000);
    }
    Watchdog watchdog(world, *cpu::open(), file, told.options());
    EXPECT_THAT(watchdog.obstacle(),
                AllOf(HasSubstr("rank 1 by rank "), HasSubstr(path.substr(0, path.size() - 1))));
    watchdog.watch();
    EXPECT_FALSE(watchdog.takes_over());
    EXPECT_FALSE(watchdog.another_died(0ms));
    EXPECT_THAT(watchdog.waits(), IsEmpty());
  });
  EXPECT_EQ(told.ends.load(), 0);
}

TEST(Watchdog, TakesNoOtherRanksFileForAPeers) {
  ToldByWatchdogs told;
  const Scratch folder;
  local::run(2, [&](Communicator& world) {
    const std::string path = folder.path(std::to_string(world.rank()));
    FlightFile file = FlightFile::create(path, world.rank(), world.size());
    if (world.rank() == 1) {
      std::filesystem::remove(path);
      FlightFile::create(path, 0, 8);
    }
    Watchdog watchdog(world, *cpu::open(), file, told.options());
    EXPECT_THAT(watchdog.obstacle(), HasSubstr("is the flight file of rank 0, process "));
  });
}

}  // namespace
}  // namespace zero::testing
