// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/parallel.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/errors.h"

namespace zero {
namespace {

using Range = std::pair<std::int64_t, std::int64_t>;

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

}  // namespace
}  // namespace zero
