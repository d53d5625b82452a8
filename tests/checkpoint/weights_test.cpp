// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Weights in and out of engines, at any stage and mesh.
#include "checkpoint/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/checkpointer.h"
#include "collectives/backends.h"
#include "tests/checkpoint/sliced.h"
#include "tests/checkpoint/tensor_files.h"
#include "tests/support/tiny_models.h"
#include "weights/hf/config.h"
#include "weights/model_files.h"

namespace zero::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

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
    save_weights(engine, scratch.path("weights"), gpt2_names());
  });
  return file_bytes(scratch.path("weights"));
}

std::vector<float> parameter(Engine& engine, std::string_view name, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  engine.states().read(name, StateKind::parameter, View::of(std::span(values)));
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
  write_bytes(scratch.path("weights"), bytes);
  std::set<std::uint64_t> hashes;
  for (Case to : kOnMeshes) {
    to.seed = 2;
    const auto load = [&](Engine& engine) {
      load_weights(engine, scratch.path("weights"), gpt2_names());
      engine.states().check_replicas();
      const std::uint64_t hash = engine.states().hash();
      if (engine.communicator().rank() == 0) hashes.insert(hash);
    };
    EXPECT_EQ(saved(to, "frozen", load), bytes) << text_of(to);
  }
  with_engines({}, "frozen", [&](Engine& engine) { hashes.insert(engine.states().hash()); });
  EXPECT_EQ(hashes.size(), 1U);
}

TEST(Weights, OfASlicedMatrixAreSplitAsThoseOfAWholeOne) {
  NameMap names = gpt2_names();
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
      const std::uint64_t hash = engine.states().hash();
      load_weights(engine, scratch.path("weights"), names);
      EXPECT_EQ(engine.states().hash(), hash);
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
    write_bytes(scratch.path("weights"), bytes);
    const Case to{.stage = 1, .world = 2, .compute = compute, .seed = 2};
    EXPECT_NE(saved(to, "frozen"), bytes);
    EXPECT_EQ(
        saved(to, "frozen",
              [&](Engine& engine) { load_weights(engine, scratch.path("weights"), gpt2_names()); }),
        bytes);
  }
}

TEST(Weights, AHuggingFaceFileReachesTheComputeCopies) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const DType compute : {DType::fp32, DType::bf16}) {
      with_engines({.stage = stage, .world = 3, .compute = compute}, "", [&](Engine& engine) {
        load_weights(engine, recorded("gpt2_tiny.safetensors"), gpt2_names());
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
  write_bytes(scratch.path("other"), file_of("{}", ""));
  with_engines({.stage = 3, .world = 2}, "", [&](Engine& engine) {
    const auto before = engine.states().hash();
    EXPECT_THAT(error_of([&] { load_weights(engine, scratch.path("other"), gpt2_names()); }),
                HasSubstr("[rank 0] load_weights: " + scratch.path("other") +
                          ": tensor \"h.0.attn.c_attn.bias\": found none of that name among 0"));
    EXPECT_EQ(engine.states().hash(), before);
  });
}

namespace fs = std::filesystem;

/// A checkpoint of these engines, and loads of its weights by engines of another seed.
class CheckpointWeights : public ::testing::Test {
 protected:
  CheckpointWeights() {
    with_engines({}, "", [&](Engine& engine) {
      Checkpointer checkpointer(engine, {.folder = scratch_.path("ck"),
                                         .file_bytes = 300,
                                         .weight_files = {{"config.json", "{}"}},
                                         .names = gpt2_names()});
      checkpointer.save({});
      checkpointer.wait();
      EXPECT_EQ(checkpointer.report()->error, "");
      hash_ = engine.states().hash();
    });
  }
  std::string at(const std::string& name) const { return step_ + "/" + name; }
  /// Changes the lowest bit of one value.
  void damage() const {
    const std::string path = at("weights/model-00002-of-00003.safetensors");
    std::string bytes = file_bytes(path);
    bytes[bytes.size() - 80] ^= 1;
    write_bytes(path, bytes);
  }
  /// Why the weights at `path` are refused, or "no error".
  std::string refusal(const std::string& path, const Case& with = {.seed = 2}) {
    std::string why;
    with_engines(with, "", [&](Engine& engine) {
      const std::string mine = error_of([&] { load_weights(engine, path, gpt2_names()); });
      const std::uint64_t hash = engine.states().hash();
      EXPECT_TRUE(mine != "no error" || hash == hash_);
      if (engine.communicator().rank() == 0) why = mine;
    });
    return why;
  }

  Scratch scratch_;
  std::string step_ = scratch_.path("ck/step_00000000");
  std::uint64_t hash_ = 0;
};

TEST_F(CheckpointWeights, AreLoadedOnlyAsTheyWereSaved) {
  const std::vector<Case> cases = {{.stage = 0, .seed = 2},
                                   {.stage = 3, .world = 5, .seed = 2},
                                   {.stage = 2, .world = 4, .seed = 2, .tensor = 2}};
  for (const Case& with : cases)
    EXPECT_EQ(refusal(at("weights"), with), "no error") << text_of(with);
  fs::create_directory_symlink(at("weights"), scratch_.path("best"));
  EXPECT_EQ(refusal(scratch_.path("best")), "no error");
  damage();
  const std::string expected =
      at("weights/model-00002-of-00003.safetensors") +
      ": offset 0: .* bytes, which hold elements "
      "0 to .* of tensor \"h.*and .* more, have the CRC32C .*: the file was damaged or changed";
  for (const Case& with : cases) {
    EXPECT_THAT(refusal(at("weights"), with), ContainsRegex("load_weights: " + expected));
  }
  EXPECT_THAT(refusal(scratch_.path("best")), ContainsRegex(expected));
  // What nobody vouches for.
  fs::copy(at("weights"), scratch_.path("weights"));
  EXPECT_EQ(error_of([&] {
              with_engines({}, "", [&](Engine& engine) {
                load_weights(engine, scratch_.path("weights"), gpt2_names());
              });
            }),
            "no error");
}

// A link on the way, in either direction, leaves nothing unchecked.
TEST_F(CheckpointWeights, AreCheckedBehindLinks) {
  const std::string file = "model-00002-of-00003.safetensors";
  fs::create_directory(scratch_.path("hf"));  // as Hugging Face's caches: a link a file
  for (const auto& each : fs::directory_iterator(at("weights"))) {
    fs::create_symlink(each.path(), scratch_.path("hf/" + each.path().filename().string()));
  }
  fs::create_symlink(at("weights/" + file), scratch_.path("shard"));
  fs::create_directory_symlink("best/../ck/step_00000000/./weights/", scratch_.path("deep"));
  fs::create_directory(scratch_.path("other"));
  fs::create_directory_symlink("other", scratch_.path("best"));
  const auto expect = [&](bool whole) {
    const std::string why = whole ? "^no error$" : file + ": offset 0: .* have the CRC32C ";
    for (const std::string& path :
         {at("weights"), at("weights/."), scratch_.path("hf"), scratch_.path("deep")}) {
      EXPECT_THAT(refusal(path), ContainsRegex(why)) << path;
    }
  };
  expect(true);
  damage();
  expect(false);
  EXPECT_THAT(refusal(scratch_.path("shard")), ContainsRegex("CRC32C"));
  fs::rename(at("weights"), scratch_.path("wt"));
  fs::create_directory_symlink("../../wt", at("weights"));
  expect(false);
}

// What is computed follows from config.json, and what is read from the tokenizer's files.
TEST_F(CheckpointWeights, SmallFilesAreReadOnlyAsTheyWereSaved) {
  const std::string path = at("weights/config.json");
  fs::create_symlink(path, scratch_.path("config.json"));
  EXPECT_EQ(read_model_text(path), "{}");
  EXPECT_EQ(read_model_text(scratch_.path("config.json")), "{}");
  write_bytes(path, "[]");
  for (const std::string& each : {path, scratch_.path("config.json")}) {
    EXPECT_THAT(error_of([&] { read_model_text(each); }),
                ContainsRegex("weights/config.json: offset 0: .*have the CRC32C"));
  }
  EXPECT_THAT(error_of([&] { read_hf_config(at("weights")); }), HasSubstr("have the CRC32C"));
  write_bytes(path, "{} ");
  EXPECT_THAT(error_of([&] { read_model_text(path); }), HasSubstr("config.json: has 3 bytes"));
  write_bytes(path, "{}");
  write_bytes(at("weights/tokenizer.json"), "{}");
  EXPECT_THAT(error_of([&] { read_model_text(at("weights/tokenizer.json")); }),
              HasSubstr("weights/tokenizer.json: is not of the checkpoint " + step_ +
                        ": its index.json lists none; remove the file, or put it into"));
  fs::create_directory(at("weights/additional_chat_templates"));
  const std::string below = at("weights/additional_chat_templates/default.jinja");
  write_bytes(below, "planted");
  EXPECT_THAT(error_of([&] { read_model_text(below); }),
              HasSubstr("default.jinja: is not of the checkpoint " + step_));
  fs::remove_all(at("weights/additional_chat_templates"));
  fs::copy(at("weights"), scratch_.path("copy"));
  EXPECT_EQ(read_model_text(scratch_.path("copy/tokenizer.json")), "{}");
}

TEST_F(CheckpointWeights, NeedNoMoments) {
  fs::remove_all(at("moments"));
  EXPECT_EQ(refusal(at("weights/")), "no error");
}

TEST_F(CheckpointWeights, AreRefusedIfTheCheckpointIsNotWhole) {
  const std::string config = at("weights/config.json");
  fs::rename(config, scratch_.path("config"));
  EXPECT_THAT(refusal(at("weights")),
              HasSubstr(config + ": is missing; index.json lists it with 2 bytes"));
  fs::rename(scratch_.path("config"), config);
  // A file that goes before the others; both are links, whose target has another name.
  fs::rename(at("weights/model-00001-of-00003.safetensors"), scratch_.path("blob"));
  fs::create_symlink(scratch_.path("blob"), at("weights/model-00001-of-00003.safetensors"));
  EXPECT_EQ(refusal(at("weights")), "no error");
  fs::create_symlink(scratch_.path("blob"), at("weights/model.safetensors"));
  EXPECT_THAT(refusal(at("weights")), HasSubstr("weights/model.safetensors: is not of the "
                                                "checkpoint " +
                                                step_));
  fs::remove(at("weights/model.safetensors"));
  fs::rename(step_, step_ + ".partial");
  EXPECT_EQ(refusal(step_ + ".partial/weights"), "no error");
  fs::remove(step_ + ".partial/COMMIT");
  EXPECT_THAT(refusal(step_ + ".partial/weights"),
              HasSubstr(step_ + ".partial/COMMIT: is missing; expected it in a committed"));
}

TEST(Weights, ASaveWritesBehindNoLink) {
  Scratch scratch;
  for (const char* name : {"weights", "weights.partial"}) {
    write_bytes(scratch.path("victim"), "kept");
    std::filesystem::create_symlink(scratch.path("victim"), scratch.path(name));
    with_engines({.stage = 3, .world = 2}, "", [&](Engine& engine) {
      EXPECT_EQ(error_of([&] { save_weights(engine, scratch.path("weights"), gpt2_names()); }),
                "no error");
    });
    EXPECT_EQ(file_bytes(scratch.path("victim")), "kept");
    EXPECT_TRUE(
        std::filesystem::is_regular_file(std::filesystem::symlink_status(scratch.path("weights"))));
    EXPECT_EQ(scratch.names(), (std::vector<std::string>{"victim", "weights"}));
    std::filesystem::remove(scratch.path("weights"));
  }
}

TEST(Weights, ASaveThatIsRefusedLeavesTheEngineUsable) {
  Scratch scratch;
  with_engines({.stage = 3, .world = 2}, "", [&](Engine& engine) {
    EXPECT_THAT(error_of([&] { save_weights(engine, scratch.path("none/weights"), gpt2_names()); }),
                HasSubstr("cannot write there"));
    save_weights(engine, scratch.path("weights"), gpt2_names());
  });
  EXPECT_EQ(scratch.names(), std::vector<std::string>{"weights"});
}

}  // namespace
}  // namespace zero::testing
