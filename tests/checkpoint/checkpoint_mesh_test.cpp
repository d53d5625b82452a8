// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Checkpoints of states that are sliced along the tensor axis, with frozen parameters and tensors
// that files hold as several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "collectives/backends.h"
#include "tests/checkpoint/checkpoint_run.h"
#include "tests/checkpoint/sliced.h"
#include "tests/checkpoint/tensor_files.h"

namespace zero::testing {
namespace {

struct Case {
  int world = 1;
  int stage = 3;
  int replicate = 1;
  int tensor = 1;
  DType compute = DType::bf16;
};

std::string text_of(const Case& with) {
  return fmt::format("world {}, stage {}, replicate {}, tensor {}, {}", with.world, with.stage,
                     with.replicate, with.tensor, name_of(with.compute));
}

CheckpointOptions options_of(const std::string& folder) {
  CheckpointOptions options{.folder = folder, .file_bytes = 2'000'000};
  options.names.splits = {{"qkv", {{"q", 30}, {"k", 12}, {"v", 12}}}};
  return options;
}

/// Engines of slices by rows and by columns, of several blocks, and of tensors that are whole.
void with_engines(const Case& with, const std::function<void(Engine&)>& body) {
  local::run(with.world, [&](Communicator& communicator) {
    const auto device = cpu::open();
    EngineOptions options;
    options.stage = with.stage;
    options.compute = with.compute;
    options.limits.persistence_threshold = 20;
    Mesh mesh(communicator, {with.replicate, -1, with.tensor});
    Engine engine(mesh, *device, options);
    engine.add_unit("columns", {sliced({"weight", {400, 960}, init::normal(1)}, mesh, 1),
                                sliced({"thirds", {31, 24}, init::normal(1)}, mesh, 1, 3),
                                {"bias", {7}, init::normal(1)}});
    engine.add_unit("rows", {sliced({"weight", {900, 333}, init::normal(1)}, mesh, 0),
                             sliced({"qkv.weight", {54, 5}, init::normal(1)}, mesh, 0, 3)});
    engine.add_unit("frozen", {sliced({"weight", {64, 65}, init::normal(1), false}, mesh, 0),
                               {"bias", {130}, init::normal(1), false},
                               {"nothing", {0, 3}}});
    engine.seal();
    body(engine);
  });
}

/// Moments that differ in every element. Collective.
void set_moments(Engine& engine) {
  for (const StateKind kind : {StateKind::moment0, StateKind::moment1}) {
    for (const LogicalTensor& tensor : engine.states().tensors(kind)) {
      std::int64_t count = 1;
      for (const std::int64_t length : tensor.shape) count *= length;
      std::vector<float> values(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(i + 1) * (kind == StateKind::moment0 ? 1.0F : 0.5F);
      engine.states().write(tensor.name, kind, View::of(std::span(values)));
    }
  }
}

const std::vector<Case> kMeshes = {{.world = 8, .stage = 3, .tensor = 2},
                                   {.world = 4, .stage = 1, .tensor = 4},
                                   {.world = 6, .stage = 2, .tensor = 3},
                                   {.world = 4, .stage = 0, .replicate = 2},
                                   {.world = 8, .stage = 3, .replicate = 2, .tensor = 2},
                                   {.world = 3, .stage = 1},
                                   {.world = 8, .stage = 0}};

TEST(CheckpointMesh, AStateLoadedAndSavedAgainHasTheSameFilesOnEveryMesh) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    Scratch scratch;
    std::set<std::uint64_t> hashes;
    const auto note = [&](Engine& engine) {
      engine.states().check_replicas();
      const std::uint64_t hash = engine.states().hash();
      if (engine.communicator().rank() == 0) hashes.insert(hash);
    };
    with_engines({.compute = compute}, [&](Engine& engine) {
      set_moments(engine);
      Checkpointer checkpointer(engine, options_of(scratch.path("first")));
      checkpointer.save({});
      checkpointer.wait();
      EXPECT_EQ(checkpointer.report()->error, "");
      note(engine);
    });
    const auto reference = contents(scratch.path("first"));
    EXPECT_GT(reference.size(), 6U);
    for (Case with : kMeshes) {
      with.compute = compute;
      with_engines(with, [&](Engine& engine) {
        Checkpointer checkpointer(engine, options_of(scratch.path("again")));
        EXPECT_EQ(checkpointer.load(scratch.path("first"))->step, 0);
        note(engine);
        checkpointer.save({});
        checkpointer.wait();
        EXPECT_EQ(checkpointer.report()->error, "");
      });
      EXPECT_TRUE(contents(scratch.path("again")) == reference) << text_of(with);
      std::filesystem::remove_all(scratch.path("again"));
    }
    EXPECT_EQ(hashes.size(), 1U);
  }
}

TEST(CheckpointMesh, AFileSizeOfAnotherRunDoesNotMatter) {
  Scratch scratch;
  with_engines({.world = 2}, [&](Engine& engine) {
    set_moments(engine);
    CheckpointOptions options = options_of(scratch.path("run"));
    const std::uint64_t hash = engine.states().hash();
    {
      Checkpointer checkpointer(engine, options);
      checkpointer.save({});
    }
    engine.states().initialise();
    EXPECT_NE(engine.states().hash(), hash);
    options.file_bytes = 500'000;
    EXPECT_TRUE(Checkpointer(engine, options).load("auto"));
    EXPECT_EQ(engine.states().hash(), hash);
  });
}

}  // namespace
}  // namespace zero::testing
