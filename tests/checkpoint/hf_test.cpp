// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Hugging Face's folders: steps against what PyTorch made of them (make_hf_reference.py), out
// again the same, and what is wrong with one is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/weights.h"
#include "tests/checkpoint/tensor_files.h"
#include "tests/model/training_harness.h"
#include "weights/checkpoint_layout.h"
#include "weights/hf/config.h"
#include "weights/hf/safetensors.h"
#include "weights/model_files.h"

namespace zero::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Reference {
  explicit Reference(const std::string& folder_name) : folder(recorded(folder_name)) {}

  std::int64_t integer(const char* key) const { return record.at(key).get<std::int64_t>(); }
  double number(const char* key) const { return record.at(key).get<double>(); }
  std::size_t steps() const { return record.at("tokens").size(); }
  BatchShape shape() const { return {integer("batch"), integer("sequence")}; }
  double tokens() const { return static_cast<double>(shape().batch * shape().sequence); }
  double expected(const char* list, std::size_t step) const {
    return record.at("fp64").at(list).at(step).get<double>();
  }
  EngineOptions options(int stage) const {
    EngineOptions options{.stage = stage};
    options.optimizer.beta1 = number("beta1");
    options.optimizer.beta2 = number("beta2");
    options.optimizer.weight_decay = number("weight_decay");
    options.groups = {{"*.bias", 1.0, 0.0}, {"*norm.weight", 1.0, 0.0}};
    options.gradient_clipping = number("clip");
    return options;
  }
  // Rows of sequence + 1 tokens.
  Batch batch(std::size_t step) const {
    return Batch::of_rows(record.at("tokens").at(step).get<std::vector<std::int32_t>>(),
                          shape().sequence);
  }

  std::string folder;
  json record = json::parse(file_bytes(folder + "/reference.json"));
};

std::vector<float> floats_of(const SafetensorsReader& file, const FileTensor& tensor) {
  const std::vector<std::byte> bytes = bytes_of(file, tensor);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// How far weights in two files are from each other, smallest first. Biases of keys are left out:
// they have no true gradient, so that Adam makes steps of their noise.
std::vector<double> distances(const std::string& found_path, const std::string& expected_path) {
  const SafetensorsReader found(found_path);
  const SafetensorsReader expected(expected_path);
  EXPECT_EQ(found.header().tensors.size(), expected.header().tensors.size());
  std::vector<double> all;
  for (const FileTensor& tensor : expected.header().tensors) {
    const FileTensor* other = found.find(tensor.name);
    if (other == nullptr || other->shape != tensor.shape) {
      ADD_FAILURE() << tensor.name;
      continue;
    }
    if (tensor.name.ends_with("k_proj.bias")) continue;
    const std::vector<float> a = floats_of(found, *other);
    const std::vector<float> b = floats_of(expected, tensor);
    for (std::size_t i = 0; i < a.size(); ++i) all.push_back(std::abs(double{a[i]} - double{b[i]}));
  }
  std::sort(all.begin(), all.end());
  return all;
}

struct Case {
  const char* folder;
  int stage;
  MeshShape mesh;
  bool sequence_parallel = false;
};
class HuggingFace : public ::testing::TestWithParam<Case> {
 protected:
  Reference reference_{GetParam().folder};
  Scratch scratch_;
};

TEST_P(HuggingFace, StepsFollowPyTorchsLossesNormsAndWeights) {
  const std::string saved = scratch_.path("saved/");
  const MeshShape& shape = GetParam().mesh;
  const auto ranks = static_cast<double>(shape.data_ranks());
  local::run(shape.ranks(), [&](Communicator& communicator) {
    const auto device = cpu::open();
    Mesh mesh(communicator, shape);
    const DecoderShape config = read_hf_config(reference_.folder);
    Training training(mesh, *device, reference_.options(GetParam().stage), config,
                      reference_.shape(), 1, {.sequence_parallel = GetParam().sequence_parallel});
    load_weights(training.engine, reference_.folder, file_names(config));
    for (std::size_t step = 0; step < reference_.steps(); ++step) {
      // Every rank has the same batch: the mean is that of one.
      const auto scale = static_cast<float>(1.0 / (reference_.tokens() * ranks));
      const double loss = training.train(reference_.batch(step), scale) / reference_.tokens();
      const StepReport report =
          training.engine.step({.learning_rate = reference_.number("learning_rate")});
      const double expected = reference_.expected("losses", step);
      const double norm = reference_.expected("gradient_norms", step);
      // Of fp64: PyTorch's own fp32 norms are up to 4e-7 away.
      EXPECT_NEAR(loss, expected, 2e-6 * expected) << "step " << step;
      // The first update divides each gradient by its size: one near 0 may change its sign, and
      // with it the norms that follow.
      EXPECT_NEAR(report.gradient_norm, norm, 4e-6 * norm) << "step " << step;
    }
    save_hf_folder(training.engine, saved, config);
  });
  const std::vector<double> off =
      distances(saved + "model.safetensors", reference_.folder + "/final.safetensors");
  ASSERT_FALSE(off.empty());
  EXPECT_LT(off[off.size() * 999 / 1000], 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Folders, HuggingFace,
    ::testing::Values(Case{"llama_tiny", 0, {1, 1, 1}}, Case{"llama_tiny", 3, {1, 2, 1}},
                      Case{"llama_tiny", 3, {1, 4, 2}}, Case{"llama_tiny", 3, {2, 2, 2}, true},
                      Case{"llama_tiny", 3, {1, 2, 4}}, Case{"qwen2_tiny", 0, {1, 1, 1}},
                      Case{"qwen2_tiny", 2, {1, 3, 1}}, Case{"qwen2_tiny", 3, {1, 2, 4}, true},
                      Case{"qwen2_tiny", 1, {1, 1, 3}}, Case{"qwen3_tiny", 0, {1, 1, 1}},
                      Case{"qwen3_tiny", 2, {1, 3, 1}}, Case{"qwen3_tiny", 3, {1, 2, 2}},
                      Case{"qwen3_tiny", 3, {1, 1, 4}, true}, Case{"qwen3_tiny", 1, {1, 1, 3}},
                      Case{"qwen2_window", 0, {1, 1, 1}}, Case{"qwen2_window", 3, {1, 2, 2}, true},
                      Case{"mistral_window", 0, {1, 1, 1}}, Case{"mistral_window", 3, {1, 2, 4}},
                      Case{"gemma3_tiny", 0, {1, 1, 1}}, Case{"gemma3_tiny", 2, {1, 3, 1}},
                      Case{"gemma3_tiny", 3, {1, 2, 2}}, Case{"gemma3_tiny", 3, {1, 1, 4}, true},
                      Case{"gemma3_tiny", 1, {1, 1, 3}}),
    [](const auto& tested) {
      const MeshShape& mesh = tested.param.mesh;
      return fmt::format("{}_stage{}_mesh{}x{}x{}{}", tested.param.folder, tested.param.stage,
                         mesh.replicate, mesh.shard, mesh.tensor,
                         tested.param.sequence_parallel ? "_sequence" : "");
    });

// GPT-2 too: what is saved is what is read, at another stage and world.
TEST(HuggingFaceFolder, ComesBackWholeAtAnotherWorld) {
  Scratch scratch;
  for (const DecoderShape& config :
       {tiny_gpt2(), tiny_llama(), tiny_qwen2(), tiny_qwen3(), tiny_local(), tiny_gemma3()}) {
    const std::string folder = scratch.path(std::string(config.family->name) + "/");
    std::uint64_t hashes[2] = {1, 2};
    local::run(3, [&](Communicator& communicator) {
      const auto device = cpu::open();
      Training training(communicator, *device, {.stage = 3, .seed = 7}, config, {1, 4});
      save_hf_folder(training.engine, folder, config);
      const std::uint64_t hash = training.engine.states().hash();
      if (communicator.rank() == 0) hashes[0] = hash;
    });
    local::run(2, [&](Communicator& communicator) {
      const auto device = cpu::open();
      const DecoderShape again = read_hf_config(folder);
      EXPECT_EQ(hf_config_text(again), hf_config_text(config));
      Training training(communicator, *device, {.stage = 2, .seed = 8}, again, {1, 4});
      load_weights(training.engine, folder, file_names(again));
      const std::uint64_t hash = training.engine.states().hash();
      if (communicator.rank() == 0) hashes[1] = hash;
    });
    EXPECT_EQ(hashes[0], hashes[1]) << folder;
  }
}

TEST(HuggingFaceWeights, WhatIsMissingOrDifferentIsNamed) {
  Scratch scratch;
  const std::string folder = scratch.path();
  EXPECT_THAT(error_of([&] { weight_files(folder); }),
              HasSubstr("found neither model.safetensors nor model.safetensors.index.json"));
  write_bytes(scratch.path("model.safetensors.index.json"), "{}");
  EXPECT_THAT(error_of([&] { weight_files(folder); }),
              HasSubstr("index.json: found no object \"weight_map\""));
  write_bytes(scratch.path("model.safetensors.index.json"), R"({"weight_map": {"a": 1}})");
  EXPECT_THAT(error_of([&] { weight_files(folder); }),
              HasSubstr("weight_map.a: found 1, expected the name of a file"));

  const std::string sharded = recorded("qwen2_tiny");
  const auto refusal = [&](const DecoderShape& config, const std::string& path) {
    std::string text;
    local::run(1, [&](Communicator& communicator) {
      const auto device = cpu::open();
      Training training(communicator, *device, {}, config, {1, 4});
      text = error_of([&] { load_weights(training.engine, path, file_names(config)); });
    });
    return text;
  };
  auto config = read_hf_config(sharded);
  config.biases = DecoderShape::Biases::none;
  EXPECT_THAT(
      refusal(config, sharded),
      HasSubstr("self_attn.k_proj.bias\": found BF16 [12], expected no tensor of that name"));
  config.biases = DecoderShape::Biases::qkv;
  config.head = DecoderShape::Head::separate;
  EXPECT_THAT(refusal(config, sharded),
              AllOf(HasSubstr("model-00001-of-00002.safetensors and 1 other files: tensor "
                              "\"lm_head.weight\": found none of that name among 26"),
                    HasSubstr("; if the token embedding is the head too, set tie_word_embeddings "
                              "to true in config.json")));
  config.head = DecoderShape::Head::tied;
  config.kv_heads = 1;
  EXPECT_THAT(refusal(config, sharded), HasSubstr("k_proj.bias\": found shape [12], expected [6]"));
  std::filesystem::copy(sharded, scratch.path("copy"));
  std::filesystem::remove(scratch.path("copy/model-00002-of-00002.safetensors"));
  EXPECT_THAT(refusal(config, scratch.path("copy")), HasSubstr("model-00002-of-00002.safetensors"));
}

TEST(HuggingFaceWeights, AnIndexNamesFilesOfItsFolderAlone) {
  Scratch scratch;
  const std::string index = scratch.path("model.safetensors.index.json");
  for (const std::string_view name : {"/etc/hostname", "../x", "..", ".", "", "a/b.safetensors",
                                      "a/../../x", "./a", "..\\x", "C:\\x", "a\\u0000b", "//x"}) {
    const std::string json_name =
        name.find("\\u") == name.npos ? json(name).dump() : fmt::format("\"{}\"", name);
    write_bytes(index, fmt::format(R"({{"weight_map": {{"good": "a", "t.0": {}}}}})", json_name));
    EXPECT_EQ(
        error_of([&] { weight_files(scratch.path()); }),
        fmt::format("{}: weight_map.t.0: found \"{}\", expected the plain name of a file in the "
                    "same folder; correct the name, and trust the weights only where their "
                    "source is known",
                    index, name.find("\\u") == name.npos ? name : "a?b"));
  }
  write_bytes(index, R"({"weight_map": {"a": "model-2", "b": "..model 1", "c": "model-2"}})");
  EXPECT_EQ(weight_files(scratch.path()),
            (std::vector{scratch.path("..model 1"), scratch.path("model-2")}));
  write_bytes(index, std::string(100'000, '[') + std::string(100'000, ']'));
  EXPECT_THAT(error_of([&] { weight_files(scratch.path()); }),
              HasSubstr("index.json: is not JSON; expected an index of safetensors files"));
}

// A cache of Hugging Face's hub: names in a snapshot are links to files elsewhere in it.
TEST(HuggingFaceWeights, LinksThatAFolderHoldsAreFollowed) {
  namespace fs = std::filesystem;
  Scratch scratch;
  const fs::path blobs = scratch.path("blobs");
  const fs::path snapshot = scratch.path("snapshots/0123abcd");
  fs::create_directories(blobs);
  fs::create_directories(snapshot);
  int number = 0;
  for (const auto& entry : fs::directory_iterator(recorded("qwen2_tiny"))) {
    const std::string blob = fmt::format("{:08x}", ++number);
    fs::copy_file(entry.path(), blobs / blob);
    fs::create_symlink("../../blobs/" + blob, snapshot / entry.path().filename());
  }
  const std::vector<std::string> files = weight_files(snapshot.string());
  ASSERT_EQ(files.size(), 2U);
  EXPECT_FALSE(SafetensorsReader(files[0]).header().tensors.empty());
  EXPECT_EQ(read_hf_config(snapshot.string()).family->name, "llama");
}

TEST(HuggingFaceWeights, ASplitThatDoesNotCoverItsTensorIsRefused) {
  const std::vector<LogicalTensor> tensors{{.name = "model.layers.0.self_attn.qkv_proj.weight",
                                            .shape = {5, 2},
                                            .kind = StateKind::parameter,
                                            .trainable = true}};
  EXPECT_THAT(error_of([&] { split_tensors(tensors, file_names(tiny_llama())); }),
              HasSubstr("of shape [5, 2] is split into 48 rows; expected as many as it has"));
}

TEST(HuggingFaceTarget, AFolderThatCannotBeWrittenIsNamed) {
  Scratch scratch;
  EXPECT_EQ(error_of([&] { check_folder_target(scratch.path("new/")); }), "no error");
  EXPECT_THAT(error_of([&] { check_folder_target(scratch.path("missing/new/")); }),
              HasSubstr("missing/new: cannot write there: folder " + scratch.path("missing") +
                        ": No such file or directory"));
  write_bytes(scratch.path("file"), "");
  EXPECT_THAT(error_of([&] { check_folder_target(scratch.path("file/")); }),
              HasSubstr("file: is there already and is not a folder"));
  std::filesystem::create_directories(scratch.path("model.safetensors"));
  EXPECT_NE(error_of([&] { check_folder_target(scratch.path() + "/"); }), "no error");
  EXPECT_TRUE(names_folder("a/"));
  EXPECT_FALSE(names_folder("a"));
}

}  // namespace
}  // namespace zero::testing
