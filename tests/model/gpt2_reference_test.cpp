// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/model/training_harness.h"

// Ten AdamW steps against what PyTorch made of the same weights and tokens
// (make_gpt2_reference.py).
namespace zero::testing {
namespace {

using Json = nlohmann::json;

std::string bytes_of(const std::string& file) {
  std::ifstream stream(std::string(ZERO_TEST_DATA) + "/" + file, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot read " + file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// A reader of its own, for whole small fp32 files: the test does not lean on the one it might help
// to break.
std::map<std::string, std::vector<float>> tensors_of(const std::string& file) {
  const std::string bytes = bytes_of(file);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  const Json header = Json::parse(bytes.substr(8, length));
  std::map<std::string, std::vector<float>> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto begin = entry.at("data_offsets").at(0).get<std::size_t>();
    const auto end = entry.at("data_offsets").at(1).get<std::size_t>();
    std::vector<float> values((end - begin) / sizeof(float));
    std::memcpy(values.data(), bytes.data() + 8 + length + begin, end - begin);
    tensors[name] = std::move(values);
  }
  return tensors;
}

struct Reference {
  Json json = Json::parse(bytes_of("gpt2_reference.json"));
  std::int64_t integer(const char* key) const { return json.at(key).get<std::int64_t>(); }
  float number(const char* key) const { return json.at(key).get<float>(); }
  Gpt2Sizes config() const {
    return {integer("layers"), integer("width"), integer("heads"), integer("context"),
            integer("vocabulary")};
  }
  BatchShape shape() const { return {integer("batch"), integer("sequence")}; }
  EngineOptions options(DType compute) const {
    EngineOptions options{.stage = 0, .compute = compute};
    options.optimizer.beta1 = number("beta1");
    options.optimizer.beta2 = number("beta2");
    options.optimizer.weight_decay = number("weight_decay");
    options.groups = {{"*.bias", 1.0F, 0.0F}, {"*ln_*", 1.0F, 0.0F}};
    options.gradient_clipping = json.at("clip").get<double>();
    return options;
  }
  // Rows of sequence + 1 tokens.
  Batch batch(std::size_t step) const {
    const auto ids = json.at("tokens").at(step).get<std::vector<std::int32_t>>();
    const auto row = static_cast<std::size_t>(integer("sequence")) + 1;
    Batch batch;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i % row != row - 1) batch.inputs.push_back(ids[i]);
      if (i % row != 0) batch.targets.push_back(ids[i]);
    }
    return batch;
  }
};

/// `loss_scale`: a power of two, which changes no bit but for gradients that would be subnormal.
void compare(DType compute, double tolerance, double weight_tolerance, double loss_scale = 1) {
  const Reference reference;
  const Json& expected = reference.json.at("fp64");
  local::run(1, [&](Communicator& communicator) {
    const auto device = cpu::open({.threads = 1});
    Training training(communicator, *device, reference.options(compute), reference.config(),
                      reference.shape());
    for (const auto& [name, values] : tensors_of("gpt2_initial.safetensors")) {
      training.write(name, values);
    }
    const auto tokens = static_cast<double>(reference.shape().batch * reference.shape().sequence);
    for (std::size_t step = 0; step < expected.at("losses").size(); ++step) {
      const double sum =
          training.train(reference.batch(step), static_cast<float>(loss_scale / tokens));
      const StepReport report =
          training.engine.step({.learning_rate = reference.json.at("learning_rate").get<double>(),
                                .loss_scale = loss_scale});
      const auto loss = expected.at("losses").at(step).get<double>();
      const auto norm = expected.at("gradient_norms").at(step).get<double>();
      EXPECT_NEAR(sum / tokens, loss, tolerance * loss) << "step " << step;
      EXPECT_NEAR(report.gradient_norm, norm, 10 * tolerance * norm) << "step " << step;
    }
    for (const auto& [name, values] : tensors_of("gpt2_final.safetensors")) {
      const std::vector<float> found = training.read(name);
      ASSERT_EQ(found.size(), values.size()) << name;
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(found[i], values[i], weight_tolerance) << name << " " << i;
      }
    }
  });
}

TEST(Gpt2Reference, Fp32FollowsPyTorchsLossesNormsAndWeights) { compare(DType::fp32, 2e-6, 2e-4); }

// Ten updates of at most the learning rate each: far inside what a wrong gradient would do.
TEST(Gpt2Reference, Bf16StaysBesidePyTorchsLosses) { compare(DType::bf16, 5e-3, 3e-2); }
TEST(Gpt2Reference, Fp16StaysBesidePyTorchsLosses) { compare(DType::fp16, 1e-3, 3e-2, 1024); }

}  // namespace
}  // namespace zero::testing
