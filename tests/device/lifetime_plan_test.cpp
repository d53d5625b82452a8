// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/lifetime_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/errors.h"

namespace zero {
namespace {

using Place = LifetimePlan::Place;
using ::testing::ElementsAre;
using ::testing::Field;

TEST(LifetimePlans, TensorsThatNeverMeetShareBytes) {
  LifetimePlan plan;
  plan.add("a", 1024, 0, 1);
  plan.add("b", 512, 1, 2);
  plan.add("c", 1024, 2, 3);
  plan.place();
  EXPECT_EQ(0, plan.at("a").offset);
  EXPECT_EQ(0, plan.at("c").offset);     // a's last step is 1
  EXPECT_EQ(1024, plan.at("b").offset);  // meets both
  EXPECT_EQ(1536, plan.total());
  EXPECT_EQ(1536, plan.lower_bound());
  EXPECT_EQ(2560, plan.without_reuse());
  EXPECT_EQ("b", plan.places()[1].name);
}

TEST(LifetimePlans, BothEndsOfALifetimeCount) {
  LifetimePlan plan;
  plan.add("a", 256, -3, 4);
  plan.add("b", 256, 4, 4);
  plan.add("c", 256, 5, std::numeric_limits<int>::max());
  plan.place();
  EXPECT_EQ(512, plan.total());
  EXPECT_EQ(0, plan.at("c").offset);
  EXPECT_EQ(512, plan.lower_bound());
  EXPECT_EQ(4, plan.peak().step);
}

TEST(LifetimePlans, PlacesBeginAtMultiplesOf256) {
  LifetimePlan plan;
  plan.add("a", 257, 0, 0);
  plan.add("b", 100, 0, 0);
  plan.place();  // the shorter one first: less lies idle behind it
  EXPECT_EQ(0, plan.at("b").offset);
  EXPECT_EQ(256, plan.at("a").offset);
  EXPECT_EQ(513, plan.total());
  EXPECT_EQ(357, plan.lower_bound());
}

TEST(LifetimePlans, ThePeakNamesItsTensorsLargestFirst) {
  LifetimePlan plan;
  plan.add("input", 100, 0, 3);
  plan.add("kept", 300, 1, 2);
  plan.add("scratch", 200, 1, 1);
  plan.add("gradient", 200, 2, 2);  // as many bytes as at step 1, later
  plan.add("late", 350, 3, 3);
  const LifetimePlan::Peak peak = plan.peak();
  EXPECT_EQ(600, peak.bytes);
  EXPECT_EQ(1, peak.step);
  EXPECT_THAT(peak.alive, ElementsAre(Field(&Place::name, "kept"), Field(&Place::name, "scratch"),
                                      Field(&Place::name, "input")));
}

TEST(LifetimePlans, OfNothingTakeNothing) {
  LifetimePlan plan;
  EXPECT_EQ(0, plan.total());
  EXPECT_EQ(0, plan.lower_bound());
  plan.place();
  EXPECT_EQ(0, plan.total());
}

/// Checked by brute force: every pair, and every step's sum.
TEST(LifetimePlans, NeverOverlapAndNeverTakeLessThanAStepNeeds) {
  std::int64_t totals = 0;
  std::int64_t bounds = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    LifetimePlan plan;
    std::vector<std::int64_t> alive(30, 0);
    std::int64_t all = 0;
    for (int i = 0; i < 40; ++i) {
      const int first = static_cast<int>(random() % 30);
      const int last = std::min(29, first + static_cast<int>(random() % 8));
      const auto bytes = static_cast<std::int64_t>(1 + random() % 10'000);
      plan.add(std::to_string(i), bytes, first, last);
      for (int s = first; s <= last; ++s) alive[static_cast<std::size_t>(s)] += bytes;
      all += bytes;
    }
    plan.place();
    EXPECT_EQ(*std::ranges::max_element(alive), plan.lower_bound()) << "seed " << seed;
    EXPECT_EQ(all, plan.without_reuse());
    std::int64_t end = 0;
    for (const Place& a : plan.places()) {
      EXPECT_EQ(0, a.offset % kPlaceAlignment);
      end = std::max(end, a.offset + a.bytes);
      for (const Place& b : plan.places()) {
        const LifeSpan x = a.spans.front();
        const LifeSpan y = b.spans.front();
        const bool together = x.first <= y.last && y.first <= x.last;
        if (&a == &b || !together) continue;
        EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset)
            << "seed " << seed << ": " << a.name << " and " << b.name;
      }
    }
    EXPECT_EQ(end, plan.total()) << "seed " << seed;
    EXPECT_GE(plan.total(), plan.lower_bound());
    totals += plan.total();
    bounds += plan.lower_bound();
  }
  EXPECT_LE(totals, bounds * 5 / 4) << "first fit, largest first, is near the bound on average";
}

TEST(LifetimePlans, LendAPlaceBetweenTheSpansOfATensor) {
  LifetimePlan plan;
  plan.add("norm", 1024, {{0, 1}, {4, 5}});
  plan.add("between", 1024, 2, 3);
  plan.add("across", 512, 1, 4);
  plan.place();
  EXPECT_EQ(1536, plan.total());
  EXPECT_EQ(1536, plan.lower_bound());
  EXPECT_EQ(plan.at("norm").offset, plan.at("between").offset);
  EXPECT_TRUE(plan.at("norm").alive_at(5));
  EXPECT_FALSE(plan.at("norm").alive_at(3));
}

TEST(LifetimePlans, TellTheMostThatIsAliveBetweenTwoSteps) {
  LifetimePlan plan;
  plan.add("long", 100, 0, 9);
  plan.add("early", 50, 1, 2);
  plan.add("late", 70, {{4, 4}, {7, 8}});
  EXPECT_EQ(170, plan.lower_bound());
  EXPECT_EQ(150, plan.most_alive(0, 3));
  EXPECT_EQ(150, plan.most_alive(2, 3));  // "early" began before
  EXPECT_EQ(100, plan.most_alive(5, 6));
  EXPECT_EQ(170, plan.most_alive(8, 20));
  EXPECT_EQ(0, plan.most_alive(10, 20));
}

TEST(LifetimePlans, PlaceAtMultiplesOfTheirAlignment) {
  LifetimePlan plan(64);
  plan.add("a", 65, 0, 0);
  plan.add("b", 10, 0, 0);
  plan.place();
  EXPECT_EQ(0, plan.at("b").offset);
  EXPECT_EQ(64, plan.at("a").offset);
  EXPECT_EQ(129, plan.total());
}

/// Layers keep more and more, and give it back in reverse, with work between: largest first leaves
/// gaps and takes 21 KiB.
TEST(LifetimePlans, StackWhatLivesWithinAnother) {
  LifetimePlan plan;
  for (int layer = 0; layer < 5; ++layer) {
    const std::string of = std::to_string(layer);
    plan.add("kept " + of, 1024 * (layer + 1), layer, 20 - layer);
    plan.add("work " + of, 1024 * (2 * layer % 5 + 1), 20 - layer, 21 - layer);
  }
  plan.place();
  EXPECT_EQ(plan.lower_bound(), 19 * 1024);
  EXPECT_EQ(plan.total(), 19 * 1024);
}

TEST(LifetimePlans, RefuseWhatCannotBe) {
  LifetimePlan plan;
  plan.add("a", 1, 0, 0);
  EXPECT_EQ(
      "lifetime plan: tensors were added after the last place(); call place() before their "
      "offsets or the total are read",
      error_of([&] { plan.total(); }));
  plan.place();
  EXPECT_EQ("lifetime plan: \"b\" has 0 bytes, expected at least 1",
            error_of([&] { plan.add("b", 0, 0, 0); }));
  EXPECT_EQ(
      "lifetime plan: \"b\" lives from step 3 to step 2; the last step must not lie before "
      "the first",
      error_of([&] { plan.add("b", 1, 3, 2); }));
  EXPECT_EQ("lifetime plan: \"b\" lives at no step",
            error_of([&] { plan.add("b", 1, std::vector<LifeSpan>()); }));
  EXPECT_EQ(
      "lifetime plan: \"b\" lives until step 4 and again from step 4; a span must begin behind the "
      "one before",
      error_of([&] {
        plan.add("b", 1, {{0, 4}, {4, 5}});
      }));
  EXPECT_EQ("lifetime plan: \"a\" is added twice; each tensor needs a name of its own",
            error_of([&] { plan.add("a", 1, 0, 0); }));
  EXPECT_EQ(
      "lifetime plan: with \"b\" of 9223372036854775807 bytes there are more than "
      "1152921504606846976 in all",
      error_of([&] { plan.add("b", std::numeric_limits<std::int64_t>::max(), 0, 0); }));
  EXPECT_EQ("lifetime plan: there is no \"b\" among its 1 tensors",
            error_of([&] { plan.at("b"); }));
  EXPECT_EQ(1, plan.total()) << "what was refused is not in it";
}

}  // namespace
}  // namespace zero
