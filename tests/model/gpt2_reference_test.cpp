// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpt2_reference.h"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

// Ten AdamW steps against what PyTorch made of the same weights and tokens
// (make_gpt2_reference.py).
namespace zero::testing {
namespace {

using Json = nlohmann::json;

// A reader of its own, for whole small fp32 files: the test does not lean on the one it might help
// to break.
std::map<std::string, std::vector<float>> tensors_of(const std::string& file) {
  const std::string bytes = file_bytes(std::string(ZERO_TEST_DATA) + "/" + file);
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

EngineOptions options_of(const Json& recorded, DType compute) {
  EngineOptions options{.stage = 0, .compute = compute};
  options.optimizer.beta1 = recorded.at("beta1").get<float>();
  options.optimizer.beta2 = recorded.at("beta2").get<float>();
  options.optimizer.weight_decay = recorded.at("weight_decay").get<float>();
  options.groups = {{"*.bias", 1.0F, 0.0F}, {"*ln_*", 1.0F, 0.0F}};
  options.gradient_clipping = recorded.at("clip").get<double>();
  return options;
}

/// `loss_scale`: a power of two, which changes no bit but for gradients that would be subnormal.
void compare(DType compute, double tolerance, double weight_tolerance, double loss_scale = 1) {
  const Gpt2Reference reference(ZERO_TEST_DATA);
  const Json& expected = reference.json.at("fp64");
  local::run(1, [&](Communicator& communicator) {
    const auto device = cpu::open({.threads = 1});
    Training training(communicator, *device, options_of(reference.json, compute),
                      reference.config(), reference.shape());
    for (const auto& [name, values] : tensors_of("gpt2_initial.safetensors")) {
      training.write(name, values);
    }
    const double tokens = reference.tokens();
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
