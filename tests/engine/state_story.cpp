// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/state_story.h"

#include <algorithm>
#include <span>

#include "engine/value_hash.h"
#include "tests/engine/small_windows.h"
#include "tests/engine/snapshot.h"

namespace zero::testing {
namespace {

using plain::kKeptKinds;

using Rescaled = float (*)(float);

/// Writes all states anew, changed: whole tensors, or from their ends on in pieces.
void rewrite(Engine& engine, Rescaled rescaled, std::int64_t piece) {
  for (const StateKind kind : kKeptKinds) {
    for (const LogicalTensor& tensor : engine.states().tensors(kind)) {
      std::vector<float> values = plain::read(engine, tensor.name, kind);
      for (float& value : values) value = rescaled(value);
      const View all = View::of(std::span(values));
      if (piece == 0) {
        engine.states().write(tensor.name, kind, all);
        continue;
      }
      for (std::int64_t end = all.count(); end > 0; end -= std::min(end, piece)) {
        const std::int64_t count = std::min(end, piece);
        engine.states().set(tensor, end - count, all.slice(end - count, count));
      }
    }
  }
  if (piece > 0) engine.states().publish_parameters();
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
      engine, [](float value) { return 0.5F * value; }, 0);
  look();
  train();
  rewrite(
      engine, [](float value) { return 0.75F * value; }, 37);
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
  const int world = plain::ranks_of(setup.mesh);
  std::vector<std::vector<std::uint64_t>> all(static_cast<std::size_t>(world));
  plain::run(world, setup, [&](plain::Trainer& trainer, Communicator& communicator) {
    all[static_cast<std::size_t>(communicator.rank())] = story(trainer);
  });
  return all;
}

}  // namespace zero::testing
