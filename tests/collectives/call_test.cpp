// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/call.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace zero::test {
namespace {

TEST(OddCalls, AreThoseThatTheMostDoNotMake) {
  const auto call = [](std::string name, std::string details, std::vector<std::int64_t> counts) {
    Call one;
    one.name = std::move(name);
    one.details = std::move(details);
    one.counts = std::move(counts);
    return one;
  };
  const Call sum = call("all_reduce(n)", "fp32, sum", {5});
  const Call longer = call("all_reduce(n)", "fp32, sum", {6});
  const Call max = call("all_reduce(n)", "fp32, max", {5});
  const Call barrier = call("barrier(n)", "", {});
  const auto odd = [](const std::vector<Call>& calls, const std::vector<int>& names = {}) {
    const auto found = odd_calls(calls, names);
    return found ? std::optional(found->text) : std::nullopt;
  };
  EXPECT_EQ(odd({sum, sum}), std::nullopt);
  EXPECT_EQ(odd({sum, max}), std::nullopt);
  EXPECT_EQ(odd({sum, max, sum, max}), std::nullopt);
  EXPECT_EQ(odd({sum, max, sum}),
            "rank 1 calls all_reduce(n) (fp32, max), the other 2 ranks all_reduce(n) (fp32, sum)");
  EXPECT_EQ(odd({longer, sum, sum, longer, sum}, {4, 5, 6, 7, 8}),
            "ranks 4, 7 call all_reduce(n) with 6 elements in slice 0, the other 3 ranks "
            "all_reduce(n) with 5 elements in slice 0");
  EXPECT_EQ(
      odd({max, max, max, sum, sum, sum, sum}),
      "ranks 0-2 call all_reduce(n) (fp32, max), the other 4 ranks all_reduce(n) (fp32, sum)");
  const Call slices = call("all_reduce(n)", "fp32, sum", {5, 5});
  EXPECT_EQ(
      odd({sum, slices, sum}),
      "rank 1 calls all_reduce(n) with 2 slices, the other 2 ranks all_reduce(n) with 1 slice");
  // Names come first: what else differs belongs to another operation.
  EXPECT_EQ(odd({sum, barrier, max, call("split", "", {}), longer, sum}),
            "rank 1 calls barrier(n), rank 3 calls split, the other 4 ranks all_reduce(n)");
  EXPECT_EQ(
      odd_calls(std::vector{longer, sum, sum, longer, sum}, std::vector{9, 8, 7, 6, 5})->ranks,
      (std::vector{6, 9}));
}

}  // namespace
}  // namespace zero::test
