// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Tiles of a file of optimizer states that stay in memory, while updates and calls change the file.
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/engine/plain.h"
#include "tests/engine/small_windows.h"

namespace zero::testing {
namespace {

constexpr const char* kWideWeight = "wide.weight";  // of several tiles

plain::Setup wide_setup(Tier tier) {
  plain::Setup setup{plain::options(3, DType::bf16),
                     {{"wide", {{"weight", {130, 100}, init::normal(0.02F)}}}}};
  if (tier == Tier::device) return setup;
  setup.engine.tiers = small_windows(kLateFolder);
  setup.states_disk = late_disk;
  return setup;
}

// What a write leaves in a tile in memory is in the file before the update reads it.
TEST(StatesInAFile, AreUpdatedAsTheyWereJustWritten) {
  const auto hash = [](const plain::Setup& setup) {
    std::uint64_t found = 0;
    plain::run(1, setup, [&](plain::Trainer& trainer, Communicator&) {
      EngineStates& states = trainer.engine().states();
      trainer.step();
      std::vector<float> values = plain::read(trainer.engine(), kWideWeight, StateKind::moment0);
      for (float& value : values) value += 1;
      states.write(kWideWeight, StateKind::moment0, View::of(std::span(values)));
      trainer.step();
      found = states.hash();
    });
    return found;
  };
  EXPECT_EQ(hash(wide_setup(Tier::file)), hash(wide_setup(Tier::device)));
}

/// The first elements of a moment, few enough for one tile, as a copy gives them.
std::vector<float> first_copied(Engine& engine) {
  std::vector<float> values(10);
  Stream& transfer = engine.device().transfer();
  for (const LogicalTensor& tensor : engine.states().tensors(StateKind::moment0)) {
    if (tensor.name != kWideWeight) continue;
    engine.states().copy(tensor, 0, View::of(std::span(values)), transfer);
  }
  transfer.synchronize();
  return values;
}

/// The same, read.
std::vector<float> first_read(Engine& engine) {
  std::vector<float> values = plain::read(engine, kWideWeight, StateKind::moment0);
  values.resize(10);
  return values;
}

// The tile of copies is kept from one copy to the next only while the file is the same.
TEST(StatesInAFile, AreCopiedAsAStepHasLeftThem) {
  plain::run(1, wide_setup(Tier::file), [](plain::Trainer& trainer, Communicator&) {
    Engine& engine = trainer.engine();
    trainer.step();
    const std::vector<float> before = first_copied(engine);
    trainer.step();
    const std::vector<float> after = first_copied(engine);
    EXPECT_NE(after, before);
    EXPECT_EQ(after, first_read(engine));
  });
}

TEST(StatesInAFile, AreCopiedAsTheyWereJustSet) {
  plain::run(1, wide_setup(Tier::file), [](plain::Trainer& trainer, Communicator&) {
    Engine& engine = trainer.engine();
    trainer.step();
    const std::vector<float> before = first_copied(engine);
    std::vector<float> values(before.size(), 7);
    for (const LogicalTensor& tensor : engine.states().tensors(StateKind::moment0)) {
      if (tensor.name == kWideWeight) engine.states().set(tensor, 0, View::of(std::span(values)));
    }
    EXPECT_EQ(first_copied(engine), values);
    EXPECT_NE(before, values);
  });
}

}  // namespace
}  // namespace zero::testing
