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

struct Family {
  const char* name;
  DecoderShape config;
};

/// Of any family.
class Decoders : public ::testing::TestWithParam<Family> {
 protected:
  DecoderShape config_ = GetParam().config;
};
class LlamaFamily : public Decoders {};

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

TEST_P(Decoders, NextLogitsAreThoseTheLossIsMadeOf) {
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
    EXPECT_NEAR(training.evaluate(batch), loss, 1e-5 * loss);
  });
}

TEST_P(Decoders, EvaluationGivesTheTrainingLossBitForBit) {
  alone([&](Communicator& communicator, Device& device) {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      Training training(communicator, device, {.compute = dtype}, config_, {2, 7});
      const Batch batch = Batch::random(14, 23, 2);
      const double evaluated = training.evaluate(batch);
      EXPECT_EQ(training.train(batch, 1.0F), evaluated) << name_of(dtype);
    }
  });
}

TEST_P(Decoders, PlannedActivationsAreTakenOnceAndWhole) {
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
    for (const std::uint32_t seed : {1U, 2U}) {
      training.train(Batch::random(14, 23, seed), 1.0F / 14);
      training.engine.step({.learning_rate = 1e-3});
    }
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
    EXPECT_EQ(train(config_, 2, options(3), [] { return open({.memory = MemorySpace::device}); }),
              expected)
        << "memory apart";
    const Outcome of_three = train(config_, 3, options(0), on_threads(1));
    for (const int stage : {1, 2, 3}) {
      EXPECT_EQ(train(config_, 3, options(stage), on_threads(1)), of_three) << "stage " << stage;
    }
    EXPECT_EQ(of_three.losses.front(), expected.losses.front());
  }
}

const auto kLlamas =
    ::testing::Values(Family{"Llama", tiny_llama()}, Family{"Qwen2", tiny_qwen2()},
                      Family{"Qwen3", tiny_qwen3()}, Family{"Local", tiny_local()},
                      Family{"Scaled", tiny_scaled()}, Family{"Gemma3", tiny_gemma3()});
constexpr auto kName = [](const auto& tested) { return std::string(tested.param.name); };

INSTANTIATE_TEST_SUITE_P(Configs, LlamaFamily, kLlamas, kName);
INSTANTIATE_TEST_SUITE_P(Configs, Decoders, kLlamas, kName);
INSTANTIATE_TEST_SUITE_P(Gpt2, Decoders, ::testing::Values(Family{"Gpt2", tiny_gpt2()}), kName);

TEST(LlamaShape, CountsThePublishedModels) {
  const auto count = [](Section section) {
    section.update({{"family", "llama"}, {"context", 8192}});
    return decoder_shape(section).parameter_count();
  };
  EXPECT_EQ(count({{"layers", 32},
                   {"width", 4096},
                   {"heads", 32},
                   {"kv_heads", 8},
                   {"intermediate", 14336},
                   {"vocabulary", 128256}}),
            8'030'261'248);
  EXPECT_EQ(count({{"layers", 24},
                   {"width", 896},
                   {"heads", 14},
                   {"kv_heads", 2},
                   {"intermediate", 4864},
                   {"vocabulary", 151936},
                   {"head", "tied"},
                   {"qkv_bias", true}}),
            494'032'768);
  EXPECT_EQ(count({{"layers", 28},
                   {"width", 1024},
                   {"heads", 16},
                   {"kv_heads", 8},
                   {"head_width", 128},
                   {"intermediate", 3072},
                   {"vocabulary", 151936},
                   {"head", "tied"},
                   {"head_norms", true}}),
            596'049'920);
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
  const struct {
    Section changes;
    const char* words;
  } sections[] = {
      {{{"kv_heads", 3}}, "model.heads is 4, expected a multiple of model.kv_heads = 3"},
      {{{"head_width", 5}}, "model.head_width is 5, expected an even number"},
      {{{"head_width", nullptr}, {"width", 13}},
       "model.width is 13, expected a multiple of model.heads = 4"},
      {{{"norm_epsilon", 0}}, "model.norm_epsilon is 0, expected more than 0"},
      {{{"qkv_bias", true}, {"head_norms", true}}, "model.head_norms: found true beside "},
      {{{"intermediate", 0}}, "model.intermediate is 0, expected 1 to"},
      {{{"window", -1}}, "model.window is -1, expected 1 to"}};
  for (const auto& [changes, words] : sections) {
    EXPECT_THAT(error_of([&] { tiny_llama(changes); }), HasSubstr(words)) << changes;
  }
  const auto refusal = [](DecoderShape shape, const std::function<void(DecoderShape&)>& change) {
    change(shape);
    return error_of([&] { shape.validate(); });
  };
  EXPECT_THAT(refusal(tiny_llama(), [](DecoderShape& d) { d.local_rotary.emplace(); }),
              HasSubstr("rotary embeddings of local layers, expected rotary embeddings and "
                        "model.window"));
  EXPECT_THAT(refusal(tiny_llama(), [](DecoderShape& d) { d.score_scale = -1; }),
              HasSubstr("scores are multiplied by -1, expected more than 0"));
  EXPECT_THAT(
      refusal(tiny_gpt2(), [](DecoderShape& d) { d.embedding_scale = 2; }),
      HasSubstr("the embedding is multiplied by 2, expected 1 beside a table of positions"));
  EXPECT_THAT(refusal(tiny_local(), [](DecoderShape& d) { d.layers = 3; }),
              HasSubstr("model.local_layers is of 2 layers, expected model.layers = 3"));
  EXPECT_THAT(refusal(tiny_local(), [](DecoderShape& d) { d.window = 0; }),
              HasSubstr("model.local_layers is given without model.window"));
}

}  // namespace
}  // namespace zero::testing
