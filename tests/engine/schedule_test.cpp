// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "tests/engine/schedule_audit.h"
#include "tests/errors.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kElements = 1000;

ScheduleInput layers(int units, ScheduleLimits limits = {}) {
  ScheduleInput input{audit::forward_and_backward(units), {}, limits};
  for (int i = 0; i < units; ++i)
    input.units.push_back({kElements, 2 * kElements, 2 * kElements, kElements});
  return input;
}

/// Three layers between a tied embedding (unit 0) and its fused head.
ScheduleInput tied(ScheduleLimits limits = {}) {
  ScheduleInput input = layers(4, limits);
  input.uses = {{{0}, Phase::forward},  {{1}, Phase::forward},  {{2}, Phase::forward},
                {{3}, Phase::forward},  {{0}, Phase::both},     {{3}, Phase::backward},
                {{2}, Phase::backward}, {{1}, Phase::backward}, {{0}, Phase::backward, false}};
  return input;
}

TEST(Schedule, KeepsItsPromisesForLayersAndForATiedModel) {
  const std::vector<std::optional<std::int64_t>> limits_of_prefetch{0,    1000,      1999,
                                                                    2000, 1'000'000, std::nullopt};
  for (const std::optional<std::int64_t>& prefetch : limits_of_prefetch) {
    for (const std::int64_t live : {0, 1000, 2500, 1'000'000}) {
      for (const std::int64_t reuse : {0, 2000, 1'000'000}) {
        ScheduleLimits limits;
        limits.prefetch_elements = prefetch;
        limits.live_elements = live;
        limits.reuse_distance = reuse;
        for (const ScheduleInput& input : {layers(5, limits), tied(limits)}) {
          EXPECT_EQ(audit::violations(input, make_schedule(input)), "")
              << limit_text(prefetch) << " " << live << " " << reuse;
        }
      }
    }
  }
}

TEST(Schedule, WithoutPrefetchGathersAtTheUseOnly) {
  ScheduleLimits limits;
  limits.prefetch_elements = 0;
  const Schedule schedule = make_schedule(layers(5, limits));
  EXPECT_TRUE(schedule.begin.empty());
  for (const Window& window : schedule.windows) EXPECT_EQ(window.issue, window.first);
  EXPECT_EQ(schedule.peak_live_elements, kElements);
}

TEST(Schedule, UsesThePrefetchAllowanceFully) {
  ScheduleLimits limits;
  limits.prefetch_elements = 2 * kElements;
  const Schedule schedule = make_schedule(layers(5, limits));
  EXPECT_EQ(schedule.begin.size(), 2U);
  // The unit in use and the two ahead of it.
  EXPECT_EQ(schedule.peak_live_elements, 3 * kElements);
  limits.prefetch_elements = 1'000'000;
  ScheduleInput input = layers(5, limits);
  for (UnitSize& unit : input.units) unit.gradient_bytes = 0;
  // Every unit once: those of backward lie there still.
  const Schedule all = make_schedule(input);
  EXPECT_EQ(all.begin.size(), 5U);
  EXPECT_EQ(all.gathers, 5);
}

TEST(Schedule, IssuesNoGatherAheadOfAReductionThatIsDueBeforeItsUse) {
  // Forward is steps 0 to 4, backward 5 to 9; the windows of the last three backwards are used
  // after the reductions of steps 5, 6 and 7 are due.
  ScheduleLimits limits;
  limits.prefetch_elements = 1'000'000;
  const Schedule schedule = make_schedule(layers(5, limits));
  EXPECT_EQ(schedule.begin.size(), 5U);
  EXPECT_EQ(schedule.gathers, 7);
  std::vector<std::pair<int, int>> late;  // first use, issue
  for (const Window& window : schedule.windows) {
    if (window.kind == Window::Kind::parameters && window.issue >= 0)
      late.emplace_back(window.first, window.issue);
  }
  EXPECT_EQ(late, (std::vector<std::pair<int, int>>{{8, 6}, {9, 7}}));
}

TEST(Schedule, HoldsTheLiveLimitButAlwaysHasRoomForOneUnit) {
  ScheduleLimits limits;
  limits.live_elements = kElements / 2;
  const ScheduleInput input = layers(4, limits);
  const Schedule schedule = make_schedule(input);
  EXPECT_EQ(schedule.peak_live_elements, kElements);
  EXPECT_EQ(audit::violations(input, schedule), "");
  limits.live_elements = 2 * kElements;
  EXPECT_EQ(make_schedule(layers(4, limits)).peak_live_elements, 2 * kElements);
}

/// Five blocks of so many elements between an embedding and a head of others.
ScheduleInput decoder(std::int64_t block, std::int64_t vocabulary) {
  ScheduleInput input{audit::forward_and_backward(7), {}, {}};
  for (int i = 0; i < 7; ++i) {
    const std::int64_t elements = i == 0 || i == 6 ? vocabulary : block;
    input.units.push_back({elements, 2 * elements, 2 * elements, elements});
  }
  return input;
}

/// Parameter windows that are gathered no earlier than the compute step that uses them.
std::ptrdiff_t gathered_late(const Schedule& schedule) {
  return std::ranges::count_if(schedule.windows, [](const Window& window) {
    return window.kind == Window::Kind::parameters && window.issue == window.first;
  });
}

TEST(Schedule, WithoutALiveLimitTwoUnitsFitHoweverLarge) {
  constexpr std::int64_t kMillion = 1'000'000;
  const auto check = [](std::int64_t block, std::int64_t vocabulary, std::int64_t limit) {
    const ScheduleInput input = decoder(block, vocabulary);
    const Schedule schedule = make_schedule(input);
    EXPECT_EQ(audit::violations(input, schedule), "");
    EXPECT_EQ(schedule.live_limit, limit);
    EXPECT_EQ(gathered_late(schedule), 0) << block << " " << vocabulary;
    return schedule.peak_live_elements;
  };
  EXPECT_EQ(check(860 * kMillion, 260 * kMillion, 1720 * kMillion), 1720 * kMillion);
  EXPECT_EQ(check(860 * kMillion, 1050 * kMillion, 1910 * kMillion), 1910 * kMillion);
  // DeepSpeed's default has room for two of these, and for three.
  EXPECT_EQ(check(400 * kMillion, 400 * kMillion, 1000 * kMillion), 800 * kMillion);
  EXPECT_EQ(check(300 * kMillion, 300 * kMillion, 1000 * kMillion), 900 * kMillion);
}

TEST(Schedule, ALiveLimitThatIsGivenStaysABound) {
  ScheduleInput input = decoder(860'000'000, 260'000'000);
  input.limits.live_elements = kLiveElements;
  const Schedule schedule = make_schedule(input);
  EXPECT_EQ(audit::violations(input, schedule), "");
  EXPECT_LE(schedule.peak_live_elements, kLiveElements);
  EXPECT_EQ(schedule.pair_elements, 1'720'000'000);
  EXPECT_GT(gathered_late(schedule), 8);
}

TEST(Schedule, PairsAreOfTwoUnitsThatAreGathered) {
  ScheduleInput input = decoder(860'000'000, 260'000'000);
  for (int whole : {2, 4}) input.units[static_cast<std::size_t>(whole)].gathered_bytes = 0;
  input.units[3].gathered_elements = 700'000'000;
  EXPECT_EQ(make_schedule(input).pair_elements, 1'560'000'000);
  input = layers(1);
  EXPECT_EQ(make_schedule(input).pair_elements, 0) << "a unit behind itself";
}

TEST(Schedule, GathersEachUnitTwiceButForTheOneThatTurnsAround) {
  ScheduleLimits limits;
  limits.prefetch_elements = 0;
  const Schedule schedule = make_schedule(layers(4, limits));
  for (int unit = 0; unit < 3; ++unit) EXPECT_EQ(audit::gathers_of(schedule, unit), 2);
  EXPECT_EQ(audit::gathers_of(schedule, 3), 1);  // last forward and first backward are neighbours
  EXPECT_EQ(schedule.gathers, 7);
  EXPECT_EQ(schedule.steps[3].parameters, schedule.steps[4].parameters);
  EXPECT_FALSE(schedule.steps[3].release);
  EXPECT_TRUE(schedule.steps[4].release);
}

TEST(Schedule, LongerReuseDistancesGiveFewerGathers) {
  ScheduleLimits limits;
  limits.prefetch_elements = 0;
  int before = make_schedule(layers(6, limits)).gathers;
  EXPECT_EQ(before, 11);
  for (const std::int64_t reuse : {2 * kElements, 4 * kElements, 10 * kElements}) {
    limits.reuse_distance = reuse;
    const int now = make_schedule(layers(6, limits)).gathers;
    EXPECT_LT(now, before) << reuse;
    before = now;
  }
  EXPECT_EQ(before, 6);
  limits.live_elements = 2 * kElements;  // keeping units must not break the live limit
  const Schedule tight = make_schedule(layers(6, limits));
  EXPECT_GT(tight.gathers, 6);
  EXPECT_LE(tight.peak_live_elements, 2 * kElements);
}

TEST(Schedule, WithoutALimitTwoUnitsAreAhead) {
  const Schedule schedule = make_schedule(layers(8));
  EXPECT_EQ(schedule.begin.size(), 2U);
  EXPECT_EQ(schedule.peak_live_elements, 3 * kElements);
  // Windows of 2,000 bytes at multiples of 256.
  EXPECT_EQ(schedule.gradients_begin, 3 * 2048);
  for (const Window& window : schedule.windows) {
    if (window.kind == Window::Kind::parameters && window.issue >= 0) {
      EXPECT_GE(window.first - window.issue, 2);
    }
  }
}

TEST(Schedule, WithoutALimitALargeUnitGoesAheadOfAsManyElementsAsItsOwn) {
  // Compute steps 0 to 5; unit 4 is as large as three others.
  ScheduleInput input = layers(6);
  input.uses.resize(6);  // forward alone
  input.units[4].gathered_elements = 3 * kElements;
  const Schedule schedule = make_schedule(input);
  std::vector<int> issues;
  for (const Window& window : schedule.windows) issues.push_back(window.issue);
  // Before step 1, units 2 and 3 are ahead: 2,000 elements. Unit 5 waits until unit 4 alone is.
  EXPECT_EQ(issues, (std::vector<int>{-1, -1, 0, 1, 1, 3}));
  EXPECT_EQ(audit::violations(input, schedule), "");
}

TEST(Schedule, AUnitThatWouldBeGatheredAgainBeforeItsReleaseStays) {
  // Uses: forward of 0 to 3 at steps 0 to 3, backward of 3 to 0 at steps 4 to 7. When unit 2 is
  // used at step 2, only unit 3 is ahead: unit 2, next at step 5, is due again and stays.
  const Schedule schedule = make_schedule(layers(4));
  EXPECT_EQ(schedule.gathers, 6);
  EXPECT_EQ(audit::gathers_of(schedule, 3), 1);
  EXPECT_EQ(audit::gathers_of(schedule, 2), 1);
  EXPECT_EQ(audit::gathers_of(schedule, 1), 2);
  EXPECT_EQ(schedule.steps[2].parameters, schedule.steps[5].parameters);
  EXPECT_FALSE(schedule.steps[2].release);
  EXPECT_TRUE(schedule.steps[5].release);
  EXPECT_EQ(schedule.peak_live_elements, 3 * kElements);
}

TEST(Schedule, ALimitThatHoldsTheModelGathersItOnce) {
  ScheduleLimits limits;
  limits.prefetch_elements = 1'000'000;
  ScheduleInput input = tied(limits);
  for (UnitSize& unit : input.units) unit.gradient_bytes = 0;  // no reduction to wait for
  const Schedule schedule = make_schedule(input);
  EXPECT_EQ(schedule.gathers, 4);
  EXPECT_EQ(schedule.peak_live_elements, 4 * kElements);
  EXPECT_EQ(audit::violations(input, schedule), "");
}

TEST(Schedule, ATiedUnitIsGatheredTwiceAndReducedOnce) {
  const Schedule schedule = make_schedule(tied());
  EXPECT_EQ(audit::gathers_of(schedule, 0), 2);  // embedding's forward; head
  EXPECT_EQ(schedule.steps[8].parameters, -1);   // the embedding's backward reads none
  ASSERT_GE(schedule.steps[4].gradients, 0);
  EXPECT_EQ(schedule.steps[4].gradients, schedule.steps[8].gradients);
  const Window& window = schedule.windows[static_cast<std::size_t>(schedule.steps[4].gradients)];
  EXPECT_EQ(window.first, 4);
  EXPECT_EQ(window.last, 8);
  EXPECT_FALSE(schedule.steps[4].last_gradient);
  EXPECT_TRUE(schedule.steps[8].last_gradient);
}

TEST(Schedule, UnitsWithoutWindowsNeedNoArena) {
  ScheduleInput input = layers(3);
  for (UnitSize& size : input.units) size = {};
  const Schedule schedule = make_schedule(input);
  EXPECT_EQ(schedule.arena_bytes, 0);
  EXPECT_EQ(schedule.gathers, 0);
  EXPECT_EQ(audit::violations(input, schedule), "");
}

TEST(Schedule, AnEmptyOrderGivesAnEmptySchedule) {
  const ScheduleInput input{{}, {{kElements, kElements, kElements}}, {}};
  const Schedule schedule = make_schedule(input);
  EXPECT_EQ(audit::violations(input, schedule), "");
  EXPECT_EQ(schedule.arena_bytes, 0);
}

/// The fewest compute steps between the writes of two gradients that share bytes.
int least_distance(const Schedule& schedule) {
  int least = std::numeric_limits<int>::max();
  for (const Window& a : schedule.windows) {
    for (const int b : a.conflicts) {
      least =
          std::min(least, std::abs(schedule.windows[static_cast<std::size_t>(b)].first - a.first));
    }
  }
  return least;
}

TEST(Schedule, LeavesAReductionTwoStepsToRunBeforeItsMemoryIsWritten) {
  ScheduleInput input = layers(6);
  for (UnitSize& size : input.units) size = {0, 0, 2 * kElements, kElements};
  const Schedule schedule = make_schedule(input);
  EXPECT_EQ(least_distance(schedule), 3);
  EXPECT_LT(schedule.arena_bytes, 4 * 2 * kElements);  // three windows in turn, padding apart
}

TEST(Schedule, LeavesAReductionBeyondTheLimitsOneStep) {
  ScheduleInput input = layers(6);
  for (UnitSize& size : input.units) size = {0, 0, 2 * kElements, kElements};
  input.limits.prefetch_elements = kElements - 1;
  const Schedule schedule = make_schedule(input);
  EXPECT_EQ(least_distance(schedule), 2);
  EXPECT_LT(schedule.arena_bytes, 3 * 2 * kElements);
  input.limits.prefetch_elements = kElements;
  input.limits.live_elements = 3 * kElements - 1;
  EXPECT_EQ(least_distance(make_schedule(input)), 2);
  input.units[2].gradient_elements = 1;  // each gradient rests for what its own size allows
  EXPECT_EQ(audit::violations(input, make_schedule(input)), "");
}

TEST(Schedule, HashChangesWithEverythingThatChangesTheActions) {
  const auto changed = [](auto change) {
    ScheduleInput input = tied();
    change(input);
    return make_schedule(input).hash();
  };
  std::vector<std::uint64_t> hashes = {
      changed([](ScheduleInput&) {}),
      changed([](ScheduleInput& i) { std::swap(i.uses[1], i.uses[2]); }),
      changed([](ScheduleInput& i) { i.uses.pop_back(); }),
      changed([](ScheduleInput& i) { i.uses[8].needs_parameters = true; }),
      changed([](ScheduleInput& i) { i.uses[4].phase = Phase::backward; }),
      changed([](ScheduleInput& i) { i.units[1].gathered_bytes += 2; }),
      changed([](ScheduleInput& i) { i.units[1].gradient_bytes += 2; }),
      changed([](ScheduleInput& i) { i.units[1].gathered_elements += 1; }),
      changed([](ScheduleInput& i) { i.limits.prefetch_elements = 0; }),
      changed([](ScheduleInput& i) { i.limits.prefetch_elements = kElements; }),
      changed([](ScheduleInput& i) { i.limits.live_elements = 2 * kElements; }),
      changed([](ScheduleInput& i) { i.limits.reuse_distance = 2 * kElements; }),
  };
  EXPECT_EQ(hashes[0], changed([](ScheduleInput&) {}));
  std::sort(hashes.begin(), hashes.end());
  EXPECT_EQ(std::unique(hashes.begin(), hashes.end()), hashes.end());
}

TEST(Schedule, DumpMentionsEveryUnitAndEveryKindOfAction) {
  const std::string text = make_schedule(tied()).dump({"embedding", "first", "second", "third"});
  for (const std::string_view word :
       {"embedding", "first", "second", "third", "forward+backward", "gather", "wait", "write",
        "(adds)", "release", "reduce", "arena"}) {
    EXPECT_THAT(text, HasSubstr(std::string(word)));
  }
}

TEST(Schedule, RefusesAUseOfAnUnknownUnit) {
  ScheduleInput input = layers(2);
  input.uses.push_back({{2}, Phase::backward});
  EXPECT_THAT(error_of([&] { make_schedule(input); }),
              AllOf(HasSubstr("use of unit 2"), HasSubstr("there are 2 units")));
  input.uses.back().unit.index = -1;
  EXPECT_THAT(error_of([&] { make_schedule(input); }), HasSubstr("use of unit -1"));
}

ScheduleInput arbitrary_input() {
  ScheduleInput input;
  const int units = *rc::gen::inRange(1, 7);
  const std::int64_t scale = *rc::gen::element(std::int64_t{64}, std::int64_t{64'000'000});
  for (int i = 0; i < units; ++i) {
    const std::int64_t elements = *rc::gen::inRange<std::int64_t>(0, 20) * scale;
    input.units.push_back({elements, 2 * elements, *rc::gen::inRange<std::int64_t>(0, 20) * 128});
  }
  const int uses = *rc::gen::inRange(0, 20);
  for (int i = 0; i < uses; ++i) {
    const auto phase =
        *rc::gen::element(Phase::forward, Phase::backward, Phase::both, Phase::recompute);
    input.uses.push_back({{*rc::gen::inRange(0, units)}, phase, *rc::gen::inRange(0, 4) > 0});
  }
  if (*rc::gen::inRange(0, 3) > 0)
    input.limits.prefetch_elements = *rc::gen::inRange<std::int64_t>(0, 5000);
  if (*rc::gen::inRange(0, 3) > 0)
    input.limits.live_elements = *rc::gen::inRange<std::int64_t>(0, 5000);
  input.limits.reuse_distance = *rc::gen::inRange<std::int64_t>(0, 3000);
  return input;
}

TEST(Schedule, KeepsItsPromisesForAnyOrderSizesAndLimits) {
  EXPECT_TRUE(rc::check([] {
    const ScheduleInput input = arbitrary_input();
    const Schedule schedule = make_schedule(input);
    RC_ASSERT(audit::violations(input, schedule) == "");
    RC_ASSERT(schedule.hash() == make_schedule(input).hash());
  }));
}

TEST(Schedule, LimitsMoveGathersButNeverChangeWhatIsComputedOrReduced) {
  EXPECT_TRUE(rc::check([] {
    ScheduleInput input = arbitrary_input();
    const Schedule limited = make_schedule(input);
    input.limits = {};
    const Schedule free = make_schedule(input);
    for (std::size_t i = 0; i < input.uses.size(); ++i) {
      RC_ASSERT(limited.steps[i].last_gradient == free.steps[i].last_gradient);
      RC_ASSERT((limited.steps[i].parameters >= 0) == (free.steps[i].parameters >= 0));
      RC_ASSERT((limited.steps[i].gradients >= 0) == (free.steps[i].gradients >= 0));
    }
  }));
}

}  // namespace
}  // namespace zero
