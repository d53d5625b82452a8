// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// A GPT-2 out of a file as Hugging Face writes it: the losses that PyTorch recorded, and the file
// again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "checkpoint/weights.h"
#include "tests/checkpoint/tensor_files.h"
#include "tests/support/gpt2_reference.h"
#include "tests/support/test_device.h"

namespace zero::testing {
namespace {

std::string model_data(const std::string& name) {
  return std::string(ZERO_MODEL_DATA) + "/" + name;
}

/// The recorded initial weights as Hugging Face saves GPT2LMHeadModel: every name but the tied head
/// with "transformer.", causal masks among the tensors.
void write_hugging_face_file(const std::string& path, const Gpt2Reference& reference) {
  const SafetensorsReader weights(model_data("gpt2_initial.safetensors"));
  const std::int64_t context = reference.integer("context");
  std::vector<FileTensor> tensors;
  for (const FileTensor& tensor : weights.header().tensors) {
    tensors.push_back({"transformer." + tensor.name, tensor.type, tensor.shape, 0, 0});
  }
  for (std::int64_t layer = 0; layer < reference.integer("layers"); ++layer) {
    const std::string name = fmt::format("transformer.h.{}.attn.", layer);
    tensors.push_back({name + "bias", FileType::u8, {1, 1, context, context}, 0, 0});
    tensors.push_back({name + "masked_bias", FileType::f32, {}, 0, 0});
  }
  const FileTensor& head = *weights.find("wte.weight");
  tensors.push_back({"lm_head.weight", head.type, head.shape, 0, 0});
  std::map<std::string, std::vector<std::byte>> values;
  for (const FileTensor& tensor : weights.header().tensors) {
    values["transformer." + tensor.name] = bytes_of(weights, tensor);
  }
  values["lm_head.weight"] = bytes_of(weights, head);
  testing::write_tensors(path, lay_out(tensors, {{"format", "pt"}}), values);
}

struct World {
  int stage;
  int ranks;
};
class Gpt2File : public ::testing::TestWithParam<World> {};

TEST_P(Gpt2File, GivesPyTorchsLossAndComesBackWhole) {
  const Gpt2Reference reference(ZERO_MODEL_DATA);
  Scratch scratch;
  write_hugging_face_file(scratch.path("hugging_face"), reference);
  for (const std::string& path :
       {model_data("gpt2_initial.safetensors"), scratch.path("hugging_face")}) {
    local::run(GetParam().ranks, [&](Communicator& communicator) {
      // One of the worlds has a device that the host cannot see.
      const auto device =
          GetParam().ranks == 3 ? open({.memory = MemorySpace::device}) : cpu::open();
      Training training(communicator, *device, {.stage = GetParam().stage, .seed = 99},
                        reference.config(), reference.shape());
      load_weights(training.engine, path, gpt2_names());
      const double loss = training.evaluate(reference.batch(0)) / reference.tokens();
      const auto expected = reference.json.at("fp64").at("losses").at(0).get<double>();
      EXPECT_NEAR(loss, expected, 3e-6 * expected);
      save_weights(training.engine, scratch.path("saved"), gpt2_names());
    });
    const SafetensorsReader original(model_data("gpt2_initial.safetensors"));
    const SafetensorsReader saved(scratch.path("saved"));
    ASSERT_EQ(saved.header().tensors.size(), original.header().tensors.size());
    for (const FileTensor& tensor : original.header().tensors) {
      const FileTensor* found = saved.find(tensor.name);
      ASSERT_NE(found, nullptr) << tensor.name;
      EXPECT_EQ(found->shape, tensor.shape) << tensor.name;
      EXPECT_EQ(bytes_of(saved, *found), bytes_of(original, tensor)) << tensor.name;
    }
  }
}

TEST(Gpt2FileSizes, AModelOfOtherSizesSaysWhichTensorDiffers) {
  const Gpt2Reference reference(ZERO_MODEL_DATA);
  DecoderShape config = reference.config();
  config.vocabulary += 1;
  local::run(2, [&](Communicator& communicator) {
    const auto device = cpu::open();
    Training training(communicator, *device, {.stage = 3}, config, reference.shape());
    const std::string path = model_data("gpt2_initial.safetensors");
    EXPECT_EQ(error_of([&] { load_weights(training.engine, path, gpt2_names()); }),
              fmt::format("[rank 0] load_weights: {}: tensor \"wte.weight\": found shape [97, 32], "
                          "expected [98, 32]",
                          path));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Gpt2File,
                         ::testing::Values(World{0, 1}, World{1, 2}, World{2, 5}, World{3, 1},
                                           World{3, 3}),
                         [](const ::testing::TestParamInfo<World>& world) {
                           return fmt::format("Stage{}Ranks{}", world.param.stage,
                                              world.param.ranks);
                         });

}  // namespace
}  // namespace zero::testing
