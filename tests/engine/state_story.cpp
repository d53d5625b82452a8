// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/state_story.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "engine/value_hash.h"
#include "tests/engine/small_windows.h"
#include "tests/engine/snapshot.h"
#include "tests/support/combinations.h"

namespace zero::testing {
namespace {

using plain::kKeptKinds;

using Rescaled = float (*)(float);

/// Writes all states anew, changed: whole tensors, or from their ends on in pieces, two dozen of a
/// large one.
void rewrite(Engine& engine, Rescaled rescaled, bool in_pieces) {
  for (const StateKind kind : kKeptKinds) {
    for (const LogicalTensor& tensor : engine.states().tensors(kind)) {
      std::vector<float> values = plain::read(engine, tensor.name, kind);
      for (float& value : values) value = rescaled(value);
      const View all = View::of(std::span(values));
      if (!in_pieces) {
        engine.states().write(tensor.name, kind, all);
        continue;
      }
      const std::int64_t piece = std::max<std::int64_t>(37, all.count() / 23);
      for (std::int64_t end = all.count(); end > 0; end -= std::min(end, piece)) {
        const std::int64_t count = std::min(end, piece);
        engine.states().set(tensor, end - count, all.slice(end - count, count));
      }
    }
  }
  if (in_pieces) engine.states().publish_parameters();
}

/// What a rank sees.
std::vector<std::uint64_t> story(plain::Trainer& trainer) {
  Engine& engine = trainer.engine();
  std::vector<std::uint64_t> seen;
  const auto look = [&] {
    engine.states().check_replicas();
    seen.push_back(engine.states().hash());
    for (const StateKind kind : kKeptKinds) {
      for (const LogicalTensor& tensor : engine.states().tensors(kind)) {
        const std::vector<float> values = plain::read(engine, tensor.name, kind);
        seen.push_back(hash_values(View::of(std::span(values)), 0));
      }
    }
    const std::vector<float> leased = leased_values(trainer);
    seen.push_back(hash_values(View::of(std::span(leased)), 0));
  };
  const auto train = [&] {
    trainer.step();
    look();
  };
  look();
  train();
  rewrite(
      engine, [](float value) { return 0.5F * value; }, false);
  look();
  train();
  rewrite(
      engine, [](float value) { return 0.75F * value; }, true);
  look();
  train();
  engine.states().initialise();
  look();
  train();
  return seen;
}

}  // namespace

plain::Setup odd_setup(int stage, const MeshShape& mesh, DType compute, MomentFormat moments) {
  plain::Setup setup{plain::options(stage, compute), plain::odd_units()};
  setup.units.push_back({"wide",
                         {{"weight", {130, 100}, init::normal(0.02F)},
                          {"frozen", {33, 3}, init::normal(1.0F), false}}});
  setup.mesh = mesh;
  setup.slicing = plain::odd_slices;
  setup.engine.optimizer.moments = moments;
  setup.engine.limits.persistence_threshold = 30;
  return setup;
}

plain::Setup frozen_setup(const MeshShape& mesh, DType compute, MomentFormat moments) {
  plain::Setup setup = odd_setup(3, mesh, compute, moments);
  setup.units.back().parameters.push_back({"frozen_bias", {13}, init::normal(1.0F), false});
  setup.units.push_back({"still", {{"weight", {90, 70}, init::normal(1.0F), false}}});
  return setup;
}

plain::Setup with_file(plain::Setup setup) {
  setup.engine.tiers = small_windows(kLateFolder);
  setup.states_disk = late_disk;
  return setup;
}

std::vector<float> leased_values(plain::Trainer& trainer) {
  Engine& engine = trainer.engine();
  std::vector<float> all;
  engine.begin_evaluation();
  for (const UnitId unit : trainer.units()) {
    const ParameterLease lease = engine.forward(unit);
    for (int i = 0; i < trainer.parameters(unit); ++i) {
      const std::vector<float> values = plain::seen(engine, lease.at(i));
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  engine.end_evaluation();
  return all;
}

std::vector<std::vector<std::uint64_t>> stories(const plain::Setup& setup) {
  const int world = setup.mesh.ranks();
  std::vector<std::vector<std::uint64_t>> all(static_cast<std::size_t>(world));
  plain::run(world, setup, [&](plain::Trainer& trainer, Communicator& communicator) {
    all[static_cast<std::size_t>(communicator.rank())] = story(trainer);
  });
  return all;
}

void expect_stories_of_memory(const Placing& away) {
  for (const auto& [mesh, stage, moments] :
       cases_of({MeshShape{1, 1, 1}, MeshShape{1, 3, 1}, MeshShape{2, 1, 1}, MeshShape{1, 2, 2}},
                {0, 2, 3}, {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::eight_bit})) {
    const DType compute = stage == 2 ? DType::fp32 : DType::bf16;
    const plain::Setup setup = odd_setup(stage, mesh, compute, moments);
    EXPECT_EQ(stories(away(setup)), stories(setup))
        << plain::text(mesh) << ", stage " << stage << ", moments " << name_of(moments);
  }
}

void expect_to_go_on(const plain::Setup& memory, const Move& move) {
  const int world = memory.mesh.ranks();
  const std::uint64_t expected = plain::train(world, memory, 3);
  plain::Snapshot snapshot;
  plain::run(world, move.from, [&](plain::Trainer& trainer, Communicator&) {
    for (int i = 0; i < 2; ++i) trainer.step();
    Device& device = trainer.engine().device();
    snapshot.add(trainer.engine(), move.on_transfer ? device.transfer() : device.compute());
  });
  std::vector<std::uint64_t> found(static_cast<std::size_t>(world));
  plain::run(world, move.to, [&](plain::Trainer& trainer, Communicator& communicator) {
    trainer.step();
    snapshot.restore(trainer.engine(), 57);
    trainer.resume_at(2);
    trainer.step();
    found[static_cast<std::size_t>(communicator.rank())] = trainer.engine().states().hash();
  });
  for (const std::uint64_t hash : found) EXPECT_EQ(hash, expected);
}

void expect_runs_to_go_on(const Placing& here, const Placing& away) {
  for (const auto& [stage, moments, leaves, on_transfer] :
       cases_of({3, 0}, {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::eight_bit},
                {true, false}, {true, false})) {
    SCOPED_TRACE(fmt::format("stage {}, moments {}, {}, copied on {}", stage, name_of(moments),
                             leaves ? "leaves" : "comes", on_transfer ? "transfer" : "compute"));
    const plain::Setup setup = odd_setup(stage, {1, 2, 1}, DType::bf16, moments);
    expect_to_go_on(setup, {leaves ? here(setup) : away(setup), leaves ? away(setup) : here(setup),
                            on_transfer});
  }
}

}  // namespace zero::testing
