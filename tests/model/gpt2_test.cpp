// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "ops/ops.h"
#include "tests/errors.h"
#include "tests/model/finite_differences.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;

TEST(Gpt2Shape, NamedModelsHaveTheirPublishedSizes) {
  const auto count = [](const char* name) {
    return decoder_shape({{"name", name}}).parameter_count();
  };
  EXPECT_EQ(count("gpt2-124m"), 124'439'808);
  EXPECT_EQ(count("gpt2-350m"), 354'823'168);
  EXPECT_EQ(count("gpt2-774m"), 774'030'080);
  EXPECT_EQ(count("gpt2-1558m"), 1'557'611'200);
  EXPECT_THAT(error_of([&] { count("gpt2"); }), HasSubstr("there is no model \"gpt2\""));
}

TEST(Gpt2Shape, AFieldOutOfRangeIsNamed) {
  EXPECT_THAT(error_of([] {
                tiny_gpt2({{"heads", 5}});
              }),
              HasSubstr("model.width is 12, expected a multiple of model.heads = 5"));
  EXPECT_THAT(error_of([] {
                tiny_gpt2({{"layers", 0}});
              }),
              HasSubstr("model.layers is 0, expected 1 to"));
}

TEST(Gpt2, ParametersHaveHuggingFaceNamesAndShapes) {
  alone([](Communicator& communicator, Device& device) {
    Training training(communicator, device, {}, tiny_gpt2(), {2, 5});
    std::map<std::string, std::vector<std::int64_t>> shapes;
    std::int64_t total = 0;
    for (const auto& [name, count] : training.sizes()) total += count;
    for (const LogicalTensor& t : training.engine.states().held(StateKind::parameter)) {
      shapes[t.name] = t.shape;
    }
    EXPECT_EQ(shapes.size(), 2U + 2U * 12U + 2U);
    EXPECT_EQ(shapes.at("wte.weight"), (std::vector<std::int64_t>{23, 12}));
    EXPECT_EQ(shapes.at("wpe.weight"), (std::vector<std::int64_t>{9, 12}));
    EXPECT_EQ(shapes.at("h.1.attn.c_attn.weight"), (std::vector<std::int64_t>{12, 36}));
    EXPECT_EQ(shapes.at("h.0.mlp.c_proj.weight"), (std::vector<std::int64_t>{48, 12}));
    EXPECT_EQ(shapes.at("h.0.ln_2.bias"), (std::vector<std::int64_t>{12}));
    EXPECT_EQ(shapes.at("ln_f.weight"), (std::vector<std::int64_t>{12}));
    EXPECT_EQ(total, tiny_gpt2().parameter_count());
  });
}

// One gradient element of every parameter: the loss moves by it when the element moves.
TEST(Gpt2, GradientsOfEveryParameterMatchFiniteDifferencesOfTheLoss) {
  alone([](Communicator& communicator, Device& device) {
    Training training(communicator, device, {.stage = 0}, tiny_gpt2(), {2, 7});
    const Batch batch = Batch::random(14, 23, 1);
    for (const auto& [name, count] : training.sizes()) {  // away from the tiny initial gradients
      std::vector<float> values = training.read(name);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = values[i] * 8 + 0.05F * static_cast<float>(i % 7) - 0.1F;
      }
      training.write(name, values);
    }
    // Half the step doubles what the rounding of an fp32 loss does to the slope, twice the step
    // meets the truncation error.
    expect_gradients_are_slopes(training, batch, {.parts = 3, .step = 8e-3F, .least = 0.25});
  });
}

TEST(Gpt2, LayersSayWhichProductsTheProcessorHas) {
  const auto device = cpu::open();
  const auto ops = make_ops(*device);
  EXPECT_EQ(ops->bits(DType::fp32), "fp32 products by floats");
  EXPECT_THAT(ops->bits(DType::bf16), ::testing::StartsWith("bf16 products by "));
  EXPECT_EQ(ops->bits(DType::fp16), "fp16 products by floats");
}

TEST(Gpt2, MoreRowsThanOneChunkGiveTheMeanOfTheirParts) {
  // 515 rows: one chunk of 512 logits' rows and one of 3; each sequence alone gives the same loss.
  alone([](Communicator& communicator, Device& device) {
    Training all(communicator, device, {}, tiny_gpt2(), {103, 5});
    Training one(communicator, device, {}, tiny_gpt2(), {1, 5});
    const Batch batch = Batch::random(515, 23, 3);
    double sum = 0;
    for (std::size_t row = 0; row < 103; ++row) {
      const auto cut = [&](const std::vector<std::int32_t>& ids) {
        const auto first = ids.begin() + static_cast<std::ptrdiff_t>(row * 5);
        return std::vector<std::int32_t>(first, first + 5);
      };
      sum += one.evaluate({cut(batch.inputs), cut(batch.targets)});
    }
    const double together = all.train(batch, 1.0F / 515);
    EXPECT_NEAR(together, sum, 1e-6 * sum);
    EXPECT_GT(all.engine.step({.learning_rate = 1e-3}).gradient_norm, 0);
    EXPECT_LT(all.evaluate(batch), together);
  });
}

TEST(Gpt2, NextLogitsSeeNothingAfterTheirPosition) {
  alone([](Communicator& communicator, Device& device) {
    Training training(communicator, device, {}, tiny_gpt2(), {2, 7});
    Batch batch = Batch::random(14, 23, 4);
    const std::vector<float> logits = training.next_logits(batch, 3);
    for (std::size_t i = 4; i < batch.inputs.size(); ++i) batch.inputs[i] = 1;
    EXPECT_EQ(training.next_logits(batch, 3), logits);
    batch.inputs[3] = (batch.inputs[3] + 1) % 23;
    EXPECT_NE(training.next_logits(batch, 3), logits);
  });
}

TEST(Gpt2, WrongBatchesAreNamedBeforeAnythingRuns) {
  alone([](Communicator& communicator, Device& device) {
    Training training(communicator, device, {}, tiny_gpt2(), {2, 7});
    Batch batch = Batch::random(14, 23, 1);
    batch.targets[9] = 23;
    EXPECT_THAT(error_of([&] { training.train(batch, 1.0F); }),
                HasSubstr("targets: token 23 at position 9, expected 0 to 22 (the vocabulary)"));
    batch.inputs.pop_back();
    EXPECT_THAT(error_of([&] { training.train(batch, 1.0F); }),
                HasSubstr("inputs: 13 tokens, expected batch x sequence = 14"));
  });
}

TEST(Gpt2, WrongBatchShapesAreRefused) {
  alone([](Communicator& communicator, Device& device) {
    Engine engine(communicator, device, {});
    EXPECT_THAT(error_of([&] {
                  Decoder model(engine, tiny_gpt2(), {1, 10});
                }),
                HasSubstr("the sequence length is 10, expected 1 to model.context = 9"));
    EXPECT_THAT(error_of([&] {
                  Decoder model(engine, tiny_gpt2(), {0, 9});
                }),
                HasSubstr("the micro-batch has 0 rows, expected at least 1"));
  });
}

}  // namespace
}  // namespace zero::testing
