// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Weights in and out of engines, at any stage and mesh.
#include "checkpoint/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "collectives/backends.h"
#include "scratch.h"
#include "sliced.h"

namespace zero {
namespace {

using testing::error_of;
using testing::file_bytes;
using ::testing::HasSubstr;
using testing::recorded;
using testing::Scratch;
using testing::sliced;

struct Case {
  int stage = 3;
  int world = 1;
  DType compute = DType::fp32;
  std::uint64_t seed = 1;
  int replicate = 1;
  int tensor = 1;
};

std::string text_of(const Case& with) {
  return fmt::format("stage {}, world {}, {}, seed {}, replicate {}, tensor {}", with.stage,
                     with.world, name_of(with.compute), with.seed, with.replicate, with.tensor);
}

/// The parameters of gpt2_tiny.safetensors, and where `frozen` is not empty one that is frozen, in
/// an engine on every rank.
void with_engines(const Case& with, const std::string& frozen,
                  const std::function<void(Engine&)>& body) {
  SCOPED_TRACE(text_of(with));
  local::run(with.world, [&](Communicator& communicator) {
    const auto device = cpu::open();
    EngineOptions options;
    options.stage = with.stage;
    options.compute = with.compute;
    options.seed = with.seed;
    options.limits.persistence_threshold = 20;  // some parameters are kept whole, some are not
    Mesh mesh(communicator, {with.replicate, -1, with.tensor});
    Engine engine(mesh, *device, options);
    engine.add_unit("embedding",
                    {sliced({"wte", {10, 4}, init::normal(1), true, "wte.weight"}, mesh, 0),
                     {"wpe", {6, 4}, init::normal(1), true, "wpe.weight"}});
    for (const char* block : {"h.0", "h.1"}) {
      engine.add_unit(block, {{"ln_1.weight", {4}, init::ones()},
                              sliced({"attn.c_attn.weight", {4, 12}, init::normal(1)}, mesh, 1, 3),
                              sliced({"attn.c_attn.bias", {12}, init::normal(1)}, mesh, 0, 3)});
    }
    if (!frozen.empty()) {
      engine.add_unit(
          "other", {sliced({frozen, {130}, init::normal(1), false}, mesh, 0), {"nothing", {0, 3}}});
    }
    engine.seal();
    body(engine);
  });
}

std::string saved(
    const Case& with, const std::string& frozen,
    const std::function<void(Engine&)>& first = [](Engine&) {}) {
  Scratch scratch;
  with_engines(with, frozen, [&](Engine& engine) {
    first(engine);
    save_weights(engine, scratch.path("weights"));
  });
  return file_bytes(scratch.path("weights"));
}

std::vector<float> parameter(Engine& engine, std::string_view name, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  engine.read(name, StateKind::parameter, View::of(std::span(values)));
  return values;
}

TEST(Weights, SavedBytesAreEqualAtEveryStageAndWorld) {
  const std::string reference = saved({.stage = 0, .world = 1}, "frozen");
  for (const int stage : {0, 1, 2, 3}) {
    for (const int world : {1, 2, 3, 5}) {
      const Case with{.stage = stage, .world = world};
      EXPECT_EQ(saved(with, "frozen"), reference) << text_of(with);
    }
  }
  EXPECT_NE(saved({.seed = 2}, "frozen"), reference);
}

const std::vector<Case> kOnMeshes = {{.stage = 3, .world = 8, .tensor = 2},
                                     {.stage = 1, .world = 4, .tensor = 4},
                                     {.stage = 2, .world = 6, .tensor = 3},
                                     {.stage = 0, .world = 4, .replicate = 2},
                                     {.stage = 3, .world = 8, .replicate = 2, .tensor = 2}};

TEST(Weights, SavedBytesAreEqualOnEveryMesh) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    const std::string reference = saved({.stage = 0, .world = 1, .compute = compute}, "frozen");
    for (Case with : kOnMeshes) {
      with.compute = compute;
      EXPECT_EQ(saved(with, "frozen"), reference) << text_of(with);
    }
  }
}

TEST(Weights, WhatOneMeshSavesAnotherLoadsToTheSameState) {
  Scratch scratch;
  const Case from{.stage = 3, .world = 8, .tensor = 2};
  const std::string bytes = saved(from, "frozen");
  testing::write_bytes(scratch.path("weights"), bytes);
  std::set<std::uint64_t> hashes;
  for (Case to : kOnMeshes) {
    to.seed = 2;
    const auto load = [&](Engine& engine) {
      load_weights(engine, scratch.path("weights"));
      engine.check_replicas();
      const std::uint64_t hash = engine.state_hash();
      if (engine.communicator().rank() == 0) hashes.insert(hash);
    };
    EXPECT_EQ(saved(to, "frozen", load), bytes) << text_of(to);
  }
  with_engines({}, "frozen", [&](Engine& engine) { hashes.insert(engine.state_hash()); });
  EXPECT_EQ(hashes.size(), 1U);
}

TEST(Weights, OfASlicedMatrixAreSplitAsThoseOfAWholeOne) {
  NameMap names = names::gpt2();
  names.splits = {{"c_attn", {{"q", 4}, {"k", 4}, {"v", 4}}}};
  const auto files_of = [&](const Case& with) {
    Scratch scratch;
    local::run(with.world, [&](Communicator& communicator) {
      const auto device = cpu::open();
      Mesh mesh(communicator, {with.replicate, -1, with.tensor});
      Engine engine(mesh, *device, {.stage = with.stage, .seed = with.seed});
      engine.add_unit("h.0", {sliced({"c_attn.weight", {12, 5}, init::normal(1)}, mesh, 0, 3)});
      engine.seal();
      save_weights(engine, scratch.path("weights"), names);
      const std::uint64_t hash = engine.state_hash();
      load_weights(engine, scratch.path("weights"), names);
      EXPECT_EQ(engine.state_hash(), hash);
    });
    return file_bytes(scratch.path("weights"));
  };
  const std::string reference = files_of({});
  EXPECT_THAT(reference, HasSubstr("h.0.k.weight"));
  for (const Case& with : kOnMeshes) EXPECT_EQ(files_of(with), reference) << text_of(with);
}

TEST(Weights, WhatThreeRanksSaveAtStageThreeTwoRanksLoadAtStageOne) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    Scratch scratch;
    const Case from{.stage = 3, .world = 3, .compute = compute};
    const std::string bytes = saved(from, "frozen");
    testing::write_bytes(scratch.path("weights"), bytes);
    const Case to{.stage = 1, .world = 2, .compute = compute, .seed = 2};
    EXPECT_NE(saved(to, "frozen"), bytes);
    EXPECT_EQ(
        saved(to, "frozen", [&](Engine& engine) { load_weights(engine, scratch.path("weights")); }),
        bytes);
  }
}

TEST(Weights, AHuggingFaceFileReachesTheComputeCopies) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const DType compute : {DType::fp32, DType::bf16}) {
      with_engines({.stage = stage, .world = 3, .compute = compute}, "", [&](Engine& engine) {
        load_weights(engine, recorded("gpt2_tiny.safetensors"));
        EXPECT_EQ(parameter(engine, "wpe.weight", 24).at(23), 63.0F);
        EXPECT_EQ(parameter(engine, "h.0.attn.c_attn.weight", 48).at(1), 69.0F);
        engine.begin_evaluation();
        {
          const ParameterLease lease = engine.forward(UnitId{0});
          const View wte = lease["wte"];
          ASSERT_EQ(wte.count(), 40);
          for (std::int64_t i = 0; i < wte.count(); ++i) {
            const auto index = static_cast<std::size_t>(i);
            const float value = compute == DType::bf16 ? to_float(wte.as<bfloat16>()[index])
                                                       : wte.as<float>()[index];
            ASSERT_EQ(value, static_cast<float>(i));
          }
        }
        for (const int unit : {1, 2}) (void)engine.forward(UnitId{unit});
        engine.end_evaluation();
      });
    }
  }
}

TEST(Weights, ALoadThatIsRefusedLeavesTheEngineAsItWas) {
  Scratch scratch;
  testing::write_bytes(scratch.path("other"), testing::file_of("{}", ""));
  with_engines({.stage = 3, .world = 2}, "", [&](Engine& engine) {
    const auto before = engine.state_hash();
    EXPECT_THAT(error_of([&] { load_weights(engine, scratch.path("other")); }),
                HasSubstr("[rank 0] load_weights: " + scratch.path("other") +
                          ": tensor \"h.0.attn.c_attn.bias\": found none of that name among 0"));
    EXPECT_EQ(engine.state_hash(), before);
  });
}

TEST(Weights, ASaveThatIsRefusedLeavesTheEngineUsable) {
  Scratch scratch;
  with_engines({.stage = 3, .world = 2}, "", [&](Engine& engine) {
    EXPECT_THAT(error_of([&] { save_weights(engine, scratch.path("none/weights")); }),
                HasSubstr("cannot write there"));
    save_weights(engine, scratch.path("weights"));
  });
  EXPECT_EQ(scratch.names(), std::vector<std::string>{"weights"});
}

}  // namespace
}  // namespace zero
