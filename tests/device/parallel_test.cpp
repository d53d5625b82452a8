// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/errors.h"

namespace zero {
namespace {

using Range = std::pair<std::int64_t, std::int64_t>;

/// The threads that take turns of a team's calls: fewer where OpenMP is limited (OMP_THREAD_LIMIT).
std::set<::pid_t> team_of(int threads) {
  std::mutex mutex;
  std::set<::pid_t> seen;
  cpu::parallel_for(threads, threads, 1, [&](std::int64_t, std::int64_t) {
    const std::lock_guard lock(mutex);
    seen.insert(::gettid());
  });
  return seen;
}

TEST(ParallelFor, CoversEveryElementOnceInRangesOfWholeGrains) {
  for (const int threads : {1, 2, 3, 8}) {
    for (const std::int64_t count : {1, 63, 64, 65, 1000}) {
      std::vector<int> seen(static_cast<std::size_t>(count));
      cpu::parallel_for(threads, count, 64, [&](std::int64_t begin, std::int64_t end) {
        EXPECT_EQ(0, begin % 64);
        EXPECT_TRUE(end % 64 == 0 || end == count);
        for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
      });
      EXPECT_EQ(std::vector<int>(seen.size(), 1), seen) << threads << " " << count;
    }
  }
}

TEST(ParallelFor, OnOneThreadIsOnePlainCall) {
  std::vector<Range> ranges;
  const auto caller = std::this_thread::get_id();
  cpu::parallel_for(1, 1000, 10, [&](std::int64_t begin, std::int64_t end) {
    EXPECT_EQ(caller, std::this_thread::get_id());
    ranges.emplace_back(begin, end);
  });
  cpu::parallel_for(4, 10, 10,
                    [&](std::int64_t begin, std::int64_t end) { ranges.emplace_back(begin, end); });
  EXPECT_EQ((std::vector<Range>{{0, 1000}, {0, 10}}), ranges);
}

// OpenMP ends the threads that a smaller team has no place for.
TEST(ParallelFor, KeepsItsThreadsWhateverTheCount) {
  const std::set<::pid_t> team = team_of(4);
  for (int i = 0; i < 3; ++i) {
    cpu::parallel_for(4, 2, 1, [](std::int64_t, std::int64_t) {});
    EXPECT_EQ(team_of(4), team);
  }
}

TEST(ParallelFor, OfNothingCallsNothing) {
  cpu::parallel_for(4, 0, 1, [](std::int64_t, std::int64_t) { FAIL() << "called"; });
}

TEST(ParallelFor, EndsWithTheErrorOfItsBody) {
  for (const int threads : {1, 4}) {
    EXPECT_EQ("element 77", message_of([&] {
                cpu::parallel_for(threads, 100, 1, [](std::int64_t begin, std::int64_t end) {
                  if (begin <= 77 && 77 < end) fail("element {}", 77);
                });
              }));
  }
}

TEST(ParallelFor, RefusesNoThreadsAndNoGrain) {
  const auto body = [](std::int64_t, std::int64_t) {};
  EXPECT_EQ("parallel_for needs threads and grain above 0, got 0 and 1",
            message_of([&] { cpu::parallel_for(0, 1, 1, body); }));
  EXPECT_EQ("parallel_for needs threads and grain above 0, got 1 and 0",
            message_of([&] { cpu::parallel_for(1, 1, 0, body); }));
}

TEST(ParallelShares, CoverEveryElementOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    for (const std::int64_t count : {1, 5, 64, 1000}) {
      for (const std::int64_t part : {1, 3, 2000}) {
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
        std::vector<std::atomic<int>> inside(static_cast<std::size_t>(threads));
        cpu::parallel_shares(threads, count, part,
                             [&](std::int64_t thread, std::int64_t begin, std::int64_t end) {
                               auto& own = inside.at(static_cast<std::size_t>(thread));
                               EXPECT_EQ(0, own++) << "two at a time with one number";
                               EXPECT_LE(end - begin, part);
                               for (std::int64_t i = begin; i < end; ++i) {
                                 ++seen[static_cast<std::size_t>(i)];
                               }
                               --own;
                             });
        for (const auto& times : seen)
          EXPECT_EQ(1, times) << threads << " " << count << " " << part;
      }
    }
  }
}

TEST(ParallelShares, AreTakenFromFrontToBack) {
  std::vector<Range> ranges;
  cpu::parallel_shares(1, 10, 4, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
    ranges.emplace_back(begin, end);
  });
  EXPECT_EQ((std::vector<Range>{{0, 4}, {4, 8}, {8, 10}}), ranges);
}

// The thread that has the first element waits until all others are done: by another thread.
TEST(ParallelShares, OfAThreadThatIsDelayedAreDoneByOthers) {
  if (team_of(2).size() < 2) GTEST_SKIP() << "one thread alone";
  constexpr std::int64_t kCount = 1000;
  std::atomic<std::int64_t> done = 0;
  std::atomic<bool> waited = false;
  cpu::parallel_shares(2, kCount, 1, [&](std::int64_t, std::int64_t begin, std::int64_t) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (begin == 0 && done < kCount - 1 && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    if (begin == 0) waited = done == kCount - 1;
    ++done;
  });
  EXPECT_EQ(kCount, done);
  EXPECT_TRUE(waited);
}

// Two threads wait until the other two have done all the rest.
TEST(ParallelShares, OfSeveralThreadsThatAreDelayedAreDoneByOthers) {
  if (team_of(4).size() < 4) GTEST_SKIP() << "too few threads";
  constexpr std::int64_t kCount = 400;
  std::atomic<std::int64_t> done = 0;
  std::atomic<int> waited = 0;
  cpu::parallel_shares(4, kCount, 1, [&](std::int64_t, std::int64_t begin, std::int64_t) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const bool delayed = begin == 0 || begin == kCount / 4;
    while (delayed && done < kCount - 2 && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    if (delayed && done >= kCount - 2) ++waited;
    ++done;
  });
  EXPECT_EQ(kCount, done);
  EXPECT_EQ(2, waited);
}

TEST(ParallelShares, EndWithTheErrorOfTheirBody) {
  const auto body = [](std::int64_t, std::int64_t begin, std::int64_t) {
    if (begin == 77) fail("element {}", 77);
  };
  EXPECT_EQ("element 77", message_of([&] { cpu::parallel_shares(4, 100, 1, body); }));
}

TEST(ParallelShares, RefuseNoThreadsNoPartsAndMoreThanTheyCount) {
  const auto body = [](std::int64_t, std::int64_t, std::int64_t) { FAIL() << "called"; };
  const auto refused = [&](int threads, std::int64_t count, std::int64_t part) {
    return message_of([&] { cpu::parallel_shares(threads, count, part, body); });
  };
  EXPECT_THAT(refused(0, 1, 1), ::testing::HasSubstr("got 0 threads"));
  EXPECT_THAT(refused(1, 1, 0), ::testing::HasSubstr("in parts of 0"));
  EXPECT_THAT(refused(1, std::int64_t{1} << 32, 1),
              ::testing::HasSubstr("got 1 threads and 4294967296"));
  cpu::parallel_shares(4, 0, 1, body);
}

}  // namespace
}  // namespace zero
