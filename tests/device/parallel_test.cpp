// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <exception>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/device/restricted_thread.h"
#include "tests/errors.h"

namespace zero {
namespace {

using Range = std::pair<std::int64_t, std::int64_t>;

/// The threads of a team: each waits for the others, which a loop of a few shares does not.
std::set<::pid_t> team_of(int threads) {
  std::mutex mutex;
  std::set<::pid_t> seen;
  std::atomic<int> come = 0;
  cpu::parallel_for(threads, threads, 1, [&](std::int64_t, std::int64_t) {
    {
      const std::lock_guard lock(mutex);
      seen.insert(::gettid());
    }
    ++come;
    while (come < threads) std::this_thread::yield();
  });
  return seen;
}

std::int64_t sum_of_squares(int threads) {
  std::atomic<std::int64_t> sum = 0;
  cpu::parallel_for(threads, 100, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) sum += i * i;
  });
  return sum;
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

// On a thread of its own, whose team no other test has made larger.
TEST(ParallelFor, KeepsItsThreadsWhateverTheCount) {
  std::thread([] {
    const std::set<::pid_t> team = team_of(4);
    for (int i = 0; i < 3; ++i) {
      cpu::parallel_for(4, 2, 1, [](std::int64_t, std::int64_t) {});
      EXPECT_EQ(team_of(4), team);
    }
  }).join();
}

// A child of fork() has no thread but one: the helpers of its copy of the team never come.
TEST(ParallelFor, NeverWaitsForThreadsThatDoNotCome) {
  EXPECT_EQ(4U, team_of(4).size());
  const ::pid_t child = ::fork();
  if (child == 0) ::_exit(sum_of_squares(4) == 328'350 ? 0 : 1);
  int status = 0;
  EXPECT_EQ(child, ::waitpid(child, &status, 0));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

/// How a child ends that the thread `forks` of a team of two forks in a loop, and that goes on in
/// it: 0 if run() has thrown the error, 3 if that ended the thread.
int end_of_child(bool helper_forks) {
  const ::pid_t caller = ::gettid();
  const ::pid_t parent = ::getpid();
  std::atomic<int> come = 0;
  std::atomic<::pid_t> child = -1;
  const std::string error = error_of([&] {
    cpu::parallel_for(2, 2, 1, [&](std::int64_t, std::int64_t) {
      ++come;
      while (come < 2) std::this_thread::yield();
      if ((::gettid() == caller) == helper_forks) return;
      const ::pid_t forked = ::fork();
      if (forked != 0) child = forked;
      if (forked == 0) std::set_terminate([] { ::_exit(3); });
    });
  });
  if (::getpid() != parent) {
    const bool named =
        error.find("was forked inside of a parallel loop of its parent") != std::string::npos;
    ::_exit(named && sum_of_squares(2) == 328'350 ? 0 : 1);
  }
  EXPECT_EQ(error, "no error");
  int status = 0;
  EXPECT_EQ(child.load(), ::waitpid(child, &status, 0));
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// On a thread of its own, whose team is of two.
TEST(ParallelFor, AChildForkedInsideEndsWithAnErrorInPlaceOfWaiting) {
  std::thread([] {
    EXPECT_EQ(end_of_child(false), 0);
    EXPECT_EQ(end_of_child(true), 3);
    EXPECT_EQ(328'350, sum_of_squares(4));
  }).join();
}

TEST(ParallelFor, DoesWithoutThreadsThatTheSystemRefuses) {
  EXPECT_EQ("no error", testing::on_own_thread([] {
              ZERO_CHECK(testing::refuse({SYS_clone3, EAGAIN, 0, 0}) &&
                             testing::refuse({SYS_clone, EAGAIN, 0, 0}),
                         "the filter was refused");
              ZERO_CHECK(sum_of_squares(4) == 328'350, "{}", sum_of_squares(4));
            }));
}

TEST(ParallelFor, InsideOfAnotherIsTheCallersAlone) {
  cpu::parallel_for(4, 4, 1, [&](std::int64_t, std::int64_t) {
    const ::pid_t outer = ::gettid();
    cpu::parallel_for(4, 8, 1, [&](std::int64_t, std::int64_t) { EXPECT_EQ(outer, ::gettid()); });
  });
}

TEST(ParallelFor, EndsForEachOfManyLoopsInARow) {
  for (int i = 0; i < 20'000; ++i) ASSERT_EQ(328'350, sum_of_squares(1 + i % 5));
}

TEST(ParallelFor, OfNothingCallsNothing) {
  cpu::parallel_for(4, 0, 1, [](std::int64_t, std::int64_t) { FAIL() << "called"; });
}

TEST(ParallelFor, EndsWithTheErrorOfItsBody) {
  for (const int threads : {1, 4}) {
    EXPECT_EQ("element 77", error_of([&] {
                cpu::parallel_for(threads, 100, 1, [](std::int64_t begin, std::int64_t end) {
                  if (begin <= 77 && 77 < end) fail("element {}", 77);
                });
              }));
  }
}

TEST(ParallelFor, RefusesNoThreadsAndNoGrain) {
  const auto body = [](std::int64_t, std::int64_t) {};
  EXPECT_EQ("parallel_for needs threads and grain above 0, got 0 and 1",
            error_of([&] { cpu::parallel_for(0, 1, 1, body); }));
  EXPECT_EQ("parallel_for needs threads and grain above 0, got 1 and 0",
            error_of([&] { cpu::parallel_for(1, 1, 0, body); }));
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
  EXPECT_EQ("element 77", error_of([&] { cpu::parallel_shares(4, 100, 1, body); }));
}

TEST(ParallelShares, RefuseNoThreadsNoPartsAndMoreThanTheyCount) {
  const auto body = [](std::int64_t, std::int64_t, std::int64_t) { FAIL() << "called"; };
  const auto refused = [&](int threads, std::int64_t count, std::int64_t part) {
    return error_of([&] { cpu::parallel_shares(threads, count, part, body); });
  };
  EXPECT_THAT(refused(0, 1, 1), ::testing::HasSubstr("got 0 threads"));
  EXPECT_THAT(refused(1, 1, 0), ::testing::HasSubstr("in parts of 0"));
  EXPECT_THAT(refused(1, std::int64_t{1} << 32, 1),
              ::testing::HasSubstr("got 1 threads and 4294967296"));
  cpu::parallel_shares(4, 0, 1, body);
}

}  // namespace
}  // namespace zero
