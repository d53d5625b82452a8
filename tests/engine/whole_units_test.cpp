// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/whole_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <vector>

#include "tests/engine/schedule_audit.h"
#include "tests/errors.h"

namespace zero {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kUnit = 1 << 20;  // elements, two bytes each

/// Units of these sizes among `ranks`: forward in order, then backward in reverse.
struct Model {
  Model(const std::vector<std::int64_t>& elements, int ranks) {
    for (const std::int64_t size : elements) {
      inputs.training.units.push_back({size, 2 * size, 2 * size, size});
      kept.push_back({2 * size / ranks, 2 * size});
    }
    const auto units = static_cast<int>(elements.size());
    inputs.evaluation = inputs.training;
    inputs.training.uses = audit::forward_and_backward(units);
    inputs.evaluation.uses = inputs.training.uses;
    inputs.evaluation.uses.resize(elements.size());
  }

  std::vector<bool> choice() const { return choose_whole_units(inputs, kept); }
  std::int64_t bytes(const std::vector<bool>& whole) const {
    return parameter_bytes(inputs, kept, whole);
  }

  ScheduleInputs inputs;
  std::vector<KeptBytes> kept;
};

TEST(WholeUnits, AreAllWhereWindowsTakeWhatShardsSave) {
  // Two units of six are halved away by shards; windows of three lie beside the halves: 6 = 6.
  const Model six(std::vector<std::int64_t>(6, kUnit), 2);
  EXPECT_EQ(six.bytes(std::vector<bool>(6, false)), 2 * 6 * kUnit);
  EXPECT_EQ(six.bytes(std::vector<bool>(6, true)), 2 * 6 * kUnit);
  EXPECT_EQ(six.choice(), std::vector<bool>(6, true));  // and nothing is gathered
}

TEST(WholeUnits, AreNoneWhereShardsSaveMore) {
  // 8/2 + 3 of 8 units; 4/8 + 3 of 4.
  const Model eight(std::vector<std::int64_t>(8, kUnit), 2);
  EXPECT_EQ(eight.choice(), std::vector<bool>(8, false));
  EXPECT_EQ(eight.bytes(eight.choice()), 2 * 7 * kUnit);
  const Model four(std::vector<std::int64_t>(4, kUnit), 8);
  EXPECT_EQ(four.choice(), std::vector<bool>(4, false));
  EXPECT_EQ(four.bytes(four.choice()), 2 * 7 * kUnit / 2);
}

TEST(WholeUnits, AreAllOfOneRank) {
  EXPECT_EQ(Model(std::vector<std::int64_t>(40, kUnit), 1).choice(), std::vector<bool>(40, true));
}

TEST(WholeUnits, AreTheLargeOnesThatOnlyWindowsWouldHold) {
  // An embedding of 16 units before eight: gathered on two ranks, the halves take 12 and windows
  // 18 (it, and two behind it); whole, the embedding and halves take 20, windows 3.
  std::vector<std::int64_t> sizes(9, kUnit);
  sizes[0] = 16 * kUnit;
  const Model model(sizes, 2);
  std::vector<bool> expected(9, false);
  EXPECT_EQ(model.bytes(expected), 2 * 30 * kUnit);
  expected[0] = true;
  EXPECT_EQ(model.bytes(expected), 2 * 23 * kUnit);
  EXPECT_EQ(model.choice(), expected);
}

TEST(WholeUnits, AreNeverUnitsThatNothingGathers) {
  Model model({kUnit, kUnit, kUnit}, 1);
  model.inputs.training.units[1].gathered_bytes = 0;
  model.inputs.evaluation.units[1].gathered_bytes = 0;
  EXPECT_EQ(model.choice(), (std::vector<bool>{true, false, true}));
}

TEST(WholeUnits, RefuseAListOfAnotherLength) {
  Model model({kUnit, kUnit}, 2);
  model.kept.pop_back();
  EXPECT_THAT(error_of([&] { static_cast<void>(model.choice()); }),
              HasSubstr("2 and 2 units and kept bytes of 1"));
}

TEST(WholeUnits, TakeTheFewestBytesOfAllCutsAndNeverMoreThanAllWhole) {
  EXPECT_TRUE(rc::check([] {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(*rc::gen::inRange(1, 13)));
    for (std::int64_t& size : sizes) size = 1024 * *rc::gen::inRange<std::int64_t>(1, 40);
    const Model model(sizes, *rc::gen::inRange(1, 65));
    const std::int64_t chosen = model.bytes(model.choice());
    RC_ASSERT(chosen <= model.bytes(std::vector<bool>(sizes.size(), true)));
    RC_ASSERT(chosen <= model.bytes(std::vector<bool>(sizes.size(), false)));
    for (const std::int64_t cut : sizes) {
      std::vector<bool> whole;
      for (const std::int64_t size : sizes) whole.push_back(size >= cut);
      RC_ASSERT(chosen <= model.bytes(whole));
    }
  }));
}

}  // namespace
}  // namespace zero
