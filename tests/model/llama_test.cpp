// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <cmath>

#include "tests/errors.h"
#include "tests/model/finite_differences.h"
#include "tests/model/outcome.h"
#include "tests/support/test_device.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;

void alone(const std::function<void(Communicator&, Device&)>& body) {
  local::run(1, [&](Communicator& communicator) {
    const auto device = cpu::open({.threads = 1});
    body(communicator, *device);
  });
}

struct Family {
  const char* name;
  DecoderShape (*config)();
};

class LlamaFamily : public ::testing::TestWithParam<Family> {
 protected:
  DecoderShape config_ = GetParam().config();
};

TEST_P(LlamaFamily, CountsItsParameters) {
  alone([&](Communicator& communicator, Device& device) {
    Training training(communicator, device, {}, config_, {2, 5});
    EXPECT_EQ(training.engine.parameter_count(), config_.parameter_count());
    EXPECT_EQ(training.sizes().at("model.layers.1.self_attn.qkv_proj.weight"), (24 + 2 * 12) * 12);
    EXPECT_EQ(training.sizes().at("model.layers.0.mlp.gate_up_proj.weight"), 2 * 20 * 12);
    EXPECT_EQ(training.sizes().count("lm_head.weight"),
              config_.head == DecoderShape::Head::separate);
  });
}

// Elements of every parameter: the loss moves by the gradient when the element moves.
TEST_P(LlamaFamily, GradientsOfEveryParameterMatchFiniteDifferencesOfTheLoss) {
  alone([&](Communicator& communicator, Device& device) {
    Training training(communicator, device, {.stage = 0}, config_, {2, 7});
    const Batch batch = Batch::random(14, 23, 1);
    for (const auto& [name, count] : training.sizes()) {  // away from the tiny initial gradients
      std::vector<float> values = training.read(name);
      // The stream starts as rows of the embedding: small ones would bend what an RMS norm gives.
      const float spread = name == "model.embed_tokens.weight" ? 0.15F : 0.05F;
      // Norms of heads multiply scores twice, whose softmax would bend.
      const float times =
          name.ends_with("q_norm.weight") || name.ends_with("k_norm.weight") ? 1 : 8;
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = values[i] * times + spread * (static_cast<float>(i % 7) - 2);
      }
      training.write(name, values);
    }
    expect_gradients_are_slopes(training, batch, {.parts = 4, .step = 4e-3F, .least = 0.75});
  });
}

TEST_P(LlamaFamily, EvaluationAndNextLogitsGiveTheTrainingLoss) {
  alone([&](Communicator& communicator, Device& device) {
    Training training(communicator, device, {}, config_, {1, 6});
    const Batch batch = Batch::random(6, 23, 5);
    double loss = 0;
    for (std::int64_t position = 0; position < 6; ++position) {
      const std::vector<float> logits = training.next_logits(batch, position);
      double sum = 0;
      for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
      const auto target =
          static_cast<std::size_t>(batch.targets[static_cast<std::size_t>(position)]);
      loss += std::log(sum) - static_cast<double>(logits[target]);
    }
    const double evaluated = training.evaluate(batch);
    EXPECT_NEAR(evaluated, loss, 1e-5 * loss);
    EXPECT_EQ(training.train(batch, 1.0F), evaluated);
  });
}

TEST_P(LlamaFamily, PlannedActivationsAreTakenOnceAndWhole) {
  alone([&](Communicator& communicator, Device& device) {
    Training training(communicator, device, {}, config_, {2, 7});
    const auto activations = [](Device& of) {
      return of.ledger().snapshot().current_of(MemoryClass::activations);
    };
    EXPECT_EQ(activations(device), training.model.activation_bytes());
    const auto plan = planning::open(1);
    const auto nobody = planning::communicator(0, 1, BackendKind::local);
    const Training planned(*nobody, *plan, {}, config_, {2, 7});
    EXPECT_EQ(activations(*plan), activations(device));
    const std::int64_t before = device.ledger().allocations();
    training.train(Batch::random(14, 23, 1), 1.0F / 14);
    training.engine.step({.learning_rate = 1e-3});
    training.evaluate(Batch::random(14, 23, 3));
    EXPECT_EQ(device.ledger().allocations(), before);
  });
}

Outcome train(const DecoderShape& config, int ranks, const EngineOptions& options,
              const Open& open_device) {
  return outcome_of(config, 6, ranks, options, open_device);
}

// One hash for all stages, threads and stream orders of a world, and for all powers of two.
TEST_P(LlamaFamily, BitsDependNeitherOnStageNorWorldNorThreadsNorStreams) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    const auto options = [&](int stage) {
      EngineOptions all{.stage = stage, .compute = dtype, .gradient_clipping = 1.0};
      all.limits.persistence_threshold = 100;
      return all;
    };
    const Outcome expected = train(config_, 1, options(0), on_threads(1));
    EXPECT_EQ(train(config_, 1, options(3), on_threads(3)), expected) << "threads";
    for (const int stage : {0, 1, 2, 3}) {
      EXPECT_EQ(train(config_, 2, options(stage), on_threads(1)), expected) << "stage " << stage;
    }
    EXPECT_EQ(train(config_, 2, options(3),
                    [] { return open({.policy = StreamOrder::Policy::seeded, .seed = 3}); }),
              expected);
    EXPECT_EQ(train(config_, 2, options(3), [] { return open({.memory = Memory::apart}); }),
              expected)
        << "memory apart";
    const Outcome of_three = train(config_, 3, options(0), on_threads(1));
    for (const int stage : {1, 2, 3}) {
      EXPECT_EQ(train(config_, 3, options(stage), on_threads(1)), of_three) << "stage " << stage;
    }
    EXPECT_EQ(of_three.losses.front(), expected.losses.front());
  }
}

INSTANTIATE_TEST_SUITE_P(Configs, LlamaFamily,
                         ::testing::Values(Family{"Llama", [] { return tiny_llama().shape(); }},
                                           Family{"Qwen2", [] { return tiny_qwen2().shape(); }},
                                           Family{"Qwen3", [] { return tiny_qwen3().shape(); }},
                                           Family{"Local", [] { return tiny_local().shape(); }},
                                           Family{"Scaled", [] { return tiny_scaled().shape(); }},
                                           Family{"Gemma3", tiny_gemma3}),
                         [](const auto& tested) { return tested.param.name; });

TEST(LlamaShape, CountsThePublishedModels) {
  const LlamaSizes llama8b{
      .layers = 32, .width = 4096, .intermediate = 14336, .vocabulary = 128256, .context = 8192};
  EXPECT_EQ(llama8b.shape().parameter_count(), 8'030'261'248);
  const LlamaSizes qwen{.layers = 24,
                        .width = 896,
                        .heads = 14,
                        .kv_heads = 2,
                        .intermediate = 4864,
                        .vocabulary = 151936,
                        .head = DecoderShape::Head::tied,
                        .qkv_bias = true};
  EXPECT_EQ(qwen.shape().parameter_count(), 494'032'768);
  const LlamaSizes qwen3{.layers = 28,
                         .width = 1024,
                         .heads = 16,
                         .kv_heads = 8,
                         .head_width = 128,
                         .intermediate = 3072,
                         .vocabulary = 151936,
                         .head = DecoderShape::Head::tied,
                         .head_norms = true};
  EXPECT_EQ(qwen3.shape().parameter_count(), 596'049'920);
}

TEST(LlamaShape, CountsTheArithmeticOfWhatIsAttended) {
  const DecoderShape full = tiny_llama();
  EXPECT_DOUBLE_EQ(full.flop_per_token(8),
                   6 * (static_cast<double>(full.parameter_count()) - 23 * 12 + 2 * 24 * 8));
  // Of 36 pairs of a query and a key at or before it, 21 are seen.
  const DecoderShape local = tiny_local();
  EXPECT_DOUBLE_EQ(local.attended_positions(0, 8), 8);
  EXPECT_DOUBLE_EQ(local.attended_positions(1, 8), 8 * 21.0 / 36);
  EXPECT_DOUBLE_EQ(local.attended_positions(1, 3), 3);
  EXPECT_DOUBLE_EQ(full.flop_per_token(8) - local.flop_per_token(8), 6 * 24 * 8 * 15.0 / 36);
}

TEST(LlamaShape, AFieldOutOfRangeIsNamed) {
  const auto refusal = [](const std::function<void(LlamaSizes&)>& change) {
    LlamaSizes config = tiny_llama();
    change(config);
    return message_of([&] { config.shape(); });
  };
  EXPECT_THAT(refusal([](LlamaSizes& c) { c.kv_heads = 3; }),
              HasSubstr("model.heads is 4, expected a multiple of model.kv_heads = 3"));
  EXPECT_THAT(refusal([](LlamaSizes& c) { c.head_width = 5; }),
              HasSubstr("model.head_width is 5, expected an even number"));
  EXPECT_THAT(refusal([](LlamaSizes& c) {
                c.head_width = 0;
                c.width = 13;
              }),
              HasSubstr("model.width is 13, expected a multiple of model.heads = 4"));
  EXPECT_THAT(refusal([](LlamaSizes& c) { c.norm_epsilon = 0; }),
              HasSubstr("model.norm_epsilon is 0, expected more than 0"));
  EXPECT_THAT(refusal([](LlamaSizes& c) { c.qkv_bias = c.head_norms = true; }),
              HasSubstr("model.head_norms: found true beside "));
  EXPECT_THAT(refusal([](LlamaSizes& c) { c.intermediate = 0; }),
              HasSubstr("model.intermediate is 0, expected 1 to"));
  EXPECT_THAT(refusal([](LlamaSizes& c) { c.window = -1; }),
              HasSubstr("model.window is -1, expected 1 to"));
  EXPECT_THAT(refusal([](LlamaSizes& c) { c.local_rotary.emplace(); }),
              HasSubstr("rotary embeddings of local layers, expected rotary embeddings and "
                        "model.window"));
  EXPECT_THAT(refusal([](LlamaSizes& c) { c.score_scale = -1; }),
              HasSubstr("scores are multiplied by -1, expected more than 0"));
  DecoderShape gpt2 = tiny_gpt2();
  gpt2.embedding_scale = 2;
  EXPECT_THAT(
      message_of([&] { gpt2.validate(); }),
      HasSubstr("the embedding is multiplied by 2, expected 1 beside a table of positions"));
  DecoderShape shape = tiny_local();
  shape.layers = 3;
  EXPECT_THAT(message_of([&] { shape.validate(); }),
              HasSubstr("model.local_layers is of 2 layers, expected model.layers = 3"));
  shape.window = 0;
  EXPECT_THAT(message_of([&] { shape.validate(); }),
              HasSubstr("model.local_layers is given without model.window"));
}

}  // namespace
}  // namespace zero::testing
