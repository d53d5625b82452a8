// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/inference_model.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "inference/perplexity.h"
#include "tests/errors.h"
#include "tests/inference/saved_model.h"
#include "weights/hf/config.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;

struct Family {
  const char* name;
  DecoderShape config;
};
void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

class InferenceFamilies : public ::testing::TestWithParam<Family> {
 protected:
  const DecoderShape& config() const { return GetParam().config; }
  std::int64_t vocabulary() const { return config().vocabulary; }

  /// Logits of all tokens, (tokens, vocabulary), read by passes of these lengths behind those of
  /// the slot, which is opened if need be; the last length is repeated.
  std::vector<float> logits_in_passes(InferenceModel& model, std::span<const std::uint32_t> tokens,
                                      std::vector<std::int64_t> lengths, std::int64_t slot = 0) {
    while (!model.cache().is_open(slot)) model.cache().open();
    std::vector<float> all;
    std::size_t pass = 0;
    while (!tokens.empty()) {
      const auto length = std::min(tokens.size(), static_cast<std::size_t>(lengths[pass]));
      const InferenceModel::Part part{slot, tokens.first(length),
                                      static_cast<std::int64_t>(length)};
      model.forward(std::span(&part, 1));
      for (std::size_t i = 0; i < length; ++i) {
        const auto row = model.logits(static_cast<std::int64_t>(i));
        all.insert(all.end(), row.begin(), row.end());
      }
      tokens = tokens.subspan(length);
      pass = std::min(pass + 1, lengths.size() - 1);
    }
    return all;
  }

  Scratch scratch_;
  const std::string folder_ = scratch_.path("model/");
};

TEST_P(InferenceFamilies, TheScoreOfATextIsTheLossOfTraining) {
  constexpr std::int64_t kTokens = 120;
  with_saved_model(config(), folder_, kTokens, [&](Training& training) {
    const std::vector<std::int32_t> ids = Batch::random(kTokens + 1, vocabulary(), 3).inputs;
    const double loss = training.evaluate(
        {.inputs = {ids.begin(), ids.end() - 1}, .targets = {ids.begin() + 1, ids.end()}});
    const auto device = cpu::open();
    const auto model =
        open_inference_model(*device, folder_, {.request_tokens = kTokens + 1, .logit_rows = 7});
    const std::vector<std::uint32_t> text(ids.begin(), ids.end());
    const TextScore score = score_text(*model, text);
    EXPECT_EQ(score.tokens, kTokens);
    EXPECT_NEAR(score.nats, loss, 1e-5 * loss);
    EXPECT_NEAR(score.perplexity(), std::exp(loss / kTokens), 1e-4 * score.perplexity());
    EXPECT_EQ(model->cache().free_slots(), 1);
    // In windows: the first token of each is not foreseen.
    const auto halves =
        open_inference_model(*device, folder_, {.request_tokens = 60, .logit_rows = 60});
    EXPECT_EQ(score_text(*halves, text).tokens, 118);
    EXPECT_THAT(error_of([&] { score_text(*halves, std::span(text).first(1)); }),
                HasSubstr("a text of 1 tokens; expected two at least"));
  });
}

// As llama.cpp reads a text for its perplexity.
TEST_P(InferenceFamilies, EachWindowOfAScoredTextBeginsWithTheTokenThatBeginsTexts) {
  with_saved_model(config(), folder_, 1);
  constexpr std::size_t kWindow = 20;
  const std::vector<std::uint32_t> text = random_prompt(50, vocabulary(), 8);
  const std::vector<std::uint32_t> begin{3};
  const auto device = cpu::open();
  const auto model =
      open_inference_model(*device, folder_, {.request_tokens = kWindow, .logit_rows = 7});
  double nats = 0;
  for (std::size_t at = 0; at < text.size(); at += kWindow) {
    std::vector<std::uint32_t> window = begin;
    const std::size_t end = std::min(text.size(), at + kWindow);
    for (std::size_t i = at + 1; i < end; ++i) window.push_back(text[i]);
    nats += score_text(*model, window).nats;
  }
  const TextScore score = score_text(*model, text, begin);
  EXPECT_EQ(score.tokens, 47);
  EXPECT_NEAR(score.nats, nats, 1e-9 * nats);
  EXPECT_GT(std::abs(score.nats - score_text(*model, text).nats), 1e-6);
  // Of two tokens that begin a text neither is foreseen.
  EXPECT_EQ(score_text(*model, text, std::vector<std::uint32_t>{3, 4}).tokens, 44);
}

TEST_P(InferenceFamilies, BitsDependNeitherOnPassesNorThreadsNorBlocksNorTheSequencesBeside) {
  with_saved_model(config(), folder_, 1);
  const std::vector<std::uint32_t> tokens = random_prompt(100, vocabulary(), 5);
  const std::vector<std::uint32_t> other = random_prompt(140, vocabulary(), 6);
  using Kind = std::tuple<DType, WeightFormat, CacheFormat>;
  constexpr CacheFormat kPlain = CacheFormat::plain;
  constexpr CacheFormat kInt8 = CacheFormat::int8;
  for (const auto& [dtype, format, cache] :
       {Kind{DType::fp32, WeightFormat::plain, kPlain},
        Kind{DType::bf16, WeightFormat::plain, kPlain},
        Kind{DType::fp16, WeightFormat::plain, kPlain},
        Kind{DType::fp32, WeightFormat::int8, kPlain},
        Kind{DType::bf16, WeightFormat::int8, kPlain}, Kind{DType::fp32, WeightFormat::nf4, kPlain},
        Kind{DType::bf16, WeightFormat::q4, kPlain}, Kind{DType::fp32, WeightFormat::plain, kInt8},
        Kind{DType::bf16, WeightFormat::int8, kInt8}, Kind{DType::fp16, WeightFormat::q4, kInt8}}) {
    std::optional<std::vector<float>> expected;
    for (const auto& [threads, block] : {std::pair{1, 16}, std::pair{2, 32}, std::pair{3, 160}}) {
      const auto device = cpu::open({.threads = threads});
      const auto model = open_inference_model(*device, folder_,
                                              {.dtype = dtype,
                                               .weights = format,
                                               .cache = cache,
                                               .requests = 3,
                                               .request_tokens = 150,
                                               .block_tokens = block,
                                               .rows = 200,
                                               .logit_rows = 100});
      const std::vector<float> whole = logits_in_passes(*model, tokens, {100});
      if (!expected) expected = whole;
      ASSERT_EQ(whole, *expected) << threads << " threads";
      for (const auto& lengths :
           std::vector<std::vector<std::int64_t>>{{1}, {40, 1}, {17, 16, 33, 2}, {63, 2, 8, 9}}) {
        model->cache().trim(0, 0);
        ASSERT_EQ(logits_in_passes(*model, tokens, lengths), *expected)
            << threads << " threads, first pass of " << lengths[0] << " in " << name_of(dtype);
      }
      // The second half from slot 1, beside other sequences.
      const auto whole_tokens = std::span<const std::uint32_t>(tokens);
      logits_in_passes(*model, whole_tokens.first(50), {50}, 1);
      ASSERT_EQ(model->cache().open(), 2);
      const std::vector<InferenceModel::Part> parts{{2, std::span(other).first(90), 1},
                                                    {1, whole_tokens.subspan(50), 50}};
      model->forward(parts);
      for (std::int64_t i = 0; i < 50; ++i) {
        const auto row = model->logits(1 + i);
        ASSERT_TRUE(std::equal(row.begin(), row.end(), expected->begin() + (50 + i) * vocabulary()))
            << "row " << i;
      }
    }
  }
}

TEST_P(InferenceFamilies, NarrowTypesAreCloseToFp32) {
  with_saved_model(config(), folder_, 1);
  const std::vector<std::uint32_t> tokens = random_prompt(60, vocabulary(), 8);
  const auto logits = [&](DType dtype, WeightFormat format, CacheFormat cache) {
    const auto device = cpu::open();
    const auto model = open_inference_model(
        *device, folder_,
        {.dtype = dtype, .weights = format, .cache = cache, .rows = 64, .logit_rows = 60});
    return logits_in_passes(*model, tokens, {60});
  };
  const std::vector<float> exact = logits(DType::fp32, WeightFormat::plain, CacheFormat::plain);
  const auto distance = [&](DType dtype, WeightFormat format,
                            CacheFormat cache = CacheFormat::plain) {
    return relative_distance(logits(dtype, format, cache), exact);
  };
  const double fp16 = distance(DType::fp16, WeightFormat::plain);
  const double bf16 = distance(DType::bf16, WeightFormat::plain);
  const double int8 = distance(DType::fp32, WeightFormat::int8);
  EXPECT_GT(fp16, 0);
  EXPECT_LT(fp16, 0.003);
  EXPECT_GT(bf16, fp16);
  EXPECT_LT(bf16, 0.02);
  EXPECT_GT(int8, 0);
  EXPECT_LT(int8, 0.08);
  const double cache = distance(DType::fp32, WeightFormat::plain, CacheFormat::int8);
  EXPECT_GT(cache, 0);
  EXPECT_LT(cache, 0.03);
  EXPECT_GT(distance(DType::fp32, WeightFormat::nf4), int8);
  EXPECT_LT(distance(DType::fp32, WeightFormat::nf4), 0.8);
  EXPECT_LT(distance(DType::fp32, WeightFormat::q4), 0.8);
}

TEST_P(InferenceFamilies, ATrimmedSequenceGoesOnAsIfTheRestHadNeverBeen) {
  with_saved_model(config(), folder_, 1);
  const auto device = cpu::open();
  const auto model = open_inference_model(*device, folder_, {.rows = 100, .logit_rows = 100});
  const std::vector<std::uint32_t> tokens = random_prompt(90, vocabulary(), 9);
  const std::vector<float> expected = logits_in_passes(*model, tokens, {90});
  model->cache().trim(0, 37);
  EXPECT_EQ(model->cache().length(0), 37);
  logits_in_passes(*model, random_prompt(40, vocabulary(), 10), {40});
  model->cache().trim(0, 37);
  const std::vector<float> again = logits_in_passes(*model, std::span(tokens).subspan(37), {3, 30});
  EXPECT_TRUE(std::equal(again.begin(), again.end(), expected.begin() + 37 * vocabulary()));
}

TEST_P(InferenceFamilies, MemoryIsAsPlannedAndNothingIsAllocatedLater) {
  with_saved_model(config(), folder_, 1);
  using Kind = std::pair<WeightFormat, CacheFormat>;
  for (const auto& [format, cache] :
       {Kind{WeightFormat::plain, CacheFormat::plain}, Kind{WeightFormat::int8, CacheFormat::plain},
        Kind{WeightFormat::nf4, CacheFormat::plain}, Kind{WeightFormat::q4, CacheFormat::plain},
        Kind{WeightFormat::plain, CacheFormat::int8}}) {
    const InferenceOptions options{.dtype = DType::bf16,
                                   .weights = format,
                                   .cache = cache,
                                   .requests = 4,
                                   .request_tokens = 90,
                                   .rows = 70,
                                   .logit_rows = 30};
    const auto planning = planning::open(2);
    const InferenceModel planned(*planning, config(), options);
    const auto device = cpu::open({.threads = 2});
    const auto model = open_inference_model(*device, folder_, options);
    EXPECT_EQ(device->ledger().snapshot().labels, planning->ledger().snapshot().labels);
    const DecoderShape shape = config();
    const std::int64_t of_head =
        cache == CacheFormat::int8 ? 2 * (shape.head_width + 4) : 2 * 2 * shape.head_width;
    EXPECT_EQ(device->ledger().snapshot().labels.at("activations/key_value_cache"),
              4 * 96 * shape.layers * shape.kv_heads * of_head);
    const std::int64_t allocations = device->ledger().allocations();
    logits_in_passes(*model, random_prompt(90, vocabulary(), 3), {30, 1, 17, 16});
    EXPECT_EQ(device->ledger().allocations(), allocations);
    EXPECT_EQ(device->ledger().snapshot().peak, planning->ledger().snapshot().peak);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Configs, InferenceFamilies,
    ::testing::Values(Family{"gpt2", small_gpt2()}, Family{"llama", small_llama()},
                      Family{"qwen2", small_qwen2()}, Family{"qwen3", small_qwen3()},
                      Family{"local", small_llama({{"window", 20}, {"local_layers", "1"}})},
                      Family{"gemma3", small_gemma3()}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(ModelWeights, TakeAsManyBytesAsTheirFormatSays) {
  const auto bytes_a_parameter = [](WeightFormat format) {
    const auto device = planning::open();
    const DecoderShape config = decoder_shape({{"name", "gpt2-124m"}});
    const InferenceModel model(*device, config, {.dtype = DType::bf16, .weights = format});
    return static_cast<double>(device->ledger().snapshot().current_of(MemoryClass::parameters)) /
           static_cast<double>(config.parameter_count());
  };
  EXPECT_LT(bytes_a_parameter(WeightFormat::plain), 2.002);
  EXPECT_LT(bytes_a_parameter(WeightFormat::int8), 1.02);
  EXPECT_LT(bytes_a_parameter(WeightFormat::nf4), 0.56);
  EXPECT_LT(bytes_a_parameter(WeightFormat::q4), 0.56);
}

TEST(ModelWeights, Int8RefusesWhatHasNoScale) {
  const auto device = cpu::open();
  InferenceModel model(*device, small_gpt2(), {.weights = WeightFormat::int8});
  EXPECT_THAT(
      error_of([&] {
        model.load([](std::size_t, std::int64_t, std::span<float> values) {
          std::fill(values.begin(), values.end(), 1.0F);
          values[61] = std::numeric_limits<float>::infinity();
        });
      }),
      HasSubstr("tensor \"wte.weight\": input 1 of output 1 has weight inf; expected a finite"));
}

// The tensors that inference reads are those that training registers.
TEST(ModelWeights, AreThoseThatTrainingRegisters) {
  for (const DecoderShape& config :
       {small_gpt2(), small_llama(), small_qwen2(), small_qwen3(), small_gemma3()}) {
    local::run(1, [&](Communicator& communicator) {
      const auto device = cpu::open();
      Training training(communicator, *device, {}, config, {1, 4});
      std::map<std::string, std::vector<std::int64_t>> expected;
      for (const LogicalTensor& tensor : training.engine.states().tensors(StateKind::parameter)) {
        expected[tensor.name] = tensor.shape;
      }
      std::map<std::string, std::vector<std::int64_t>> found;
      for (const LogicalTensor& tensor : ModelWeights::tensors(config)) {
        found[tensor.name] = tensor.shape;
      }
      EXPECT_EQ(found, expected);
    });
  }
}

class RefusingModel : public ::testing::Test {
 protected:
  std::string refusal(const InferenceOptions& options) {
    return error_of([&] { InferenceModel(*device_, small_gpt2(), options); });
  }
  std::string refusal(std::int64_t slot, const std::vector<std::uint32_t>& tokens) {
    const InferenceModel::Part part{slot, tokens};
    return error_of([&] { model_.forward(std::span(&part, 1)); });
  }

  const std::unique_ptr<Device> device_ = cpu::open();
  InferenceModel model_{*device_, small_gpt2(), {.requests = 2, .request_tokens = 20, .rows = 12}};
};

TEST_F(RefusingModel, NamesOptionsFoundAndExpected) {
  EXPECT_THAT(refusal({.requests = 0}), HasSubstr("inference: requests is 0, expected 1 to 65536"));
  EXPECT_THAT(refusal({.request_tokens = 151}),
              HasSubstr("inference: request_tokens is 151, expected 1 to 150"));
  EXPECT_THAT(refusal({.rows = 513}), HasSubstr("inference: rows is 513, expected 1 to 512"));
  EXPECT_THAT(refusal({.block_tokens = 17}),
              HasSubstr("inference: block_tokens is 17, expected a multiple of 16"));
  EXPECT_THAT(refusal({.block_tokens = -16}), HasSubstr("block_tokens is -16, expected 16 to 160"));
  EXPECT_THAT(refusal({.cache_tokens = 144}),
              HasSubstr("the cache has 9 blocks of 16 tokens; expected at least 10"));
  EXPECT_THAT(refusal({.cache_tokens = -1}), HasSubstr("cache_tokens is -1"));
  EXPECT_THAT(refusal({.host_tokens = -1}),
              HasSubstr("host_tokens is -1, expected 0 to 268435456"));
  EXPECT_THAT(refusal({.dtype = DType::u8}),
              HasSubstr("inference: dtype is u8, expected fp32, bf16 or fp16"));
}

TEST_F(RefusingModel, NamesWhatAPassCannotTakeAndChangesNothing) {
  EXPECT_THAT(refusal(0, {1}), HasSubstr("forward: slot 0, expected each that the cache opened of "
                                         "0 to 1 at most once"));
  EXPECT_EQ(model_.cache().open(), 0);
  EXPECT_THAT(refusal(2, {1}), HasSubstr("forward: slot 2, expected each"));
  EXPECT_THAT(refusal(0, {1, 317}), HasSubstr("forward: token 317, expected 0 to 316"));
  EXPECT_THAT(refusal(0, {}), HasSubstr("forward: 0 tokens behind 0 of slot 0"));
  EXPECT_THAT(refusal(0, std::vector<std::uint32_t>(13)),
              HasSubstr("forward: 13 tokens in a pass, expected at most 12"));
  EXPECT_THAT(refusal(0, std::vector<std::uint32_t>(21)),
              HasSubstr("forward: 21 tokens behind 0 of slot 0, expected at least one and at most "
                        "20 in all"));
  EXPECT_EQ(model_.cache().length(0), 0);
  const std::vector<std::uint32_t> one{1};
  const std::vector<InferenceModel::Part> twice{{0, one}, {0, one}};
  EXPECT_THAT(error_of([&] { model_.forward(twice); }), HasSubstr("at most once"));
  EXPECT_THAT(error_of([&] { model_.cache().trim(0, 1); }),
              HasSubstr("slot 0 of the cache is trimmed to 1 tokens; expected 0 to 0"));
}

// Blocks whose keys and values were not written must not answer for their tokens.
TEST_F(RefusingModel, KnowsNothingOfAPassThatFailed) {
  InferenceModel model(*device_, small_gpt2(),
                       {.requests = 2, .request_tokens = 64, .block_tokens = 16, .rows = 64});
  const std::vector<std::uint32_t> tokens(40, 1);
  const InferenceModel::Part part{model.cache().open(), tokens};
  const auto pass = [&] { return error_of([&] { model.forward(std::span(&part, 1)); }); };
  EXPECT_EQ(error_of([&] {
              device_->compute().submit_host("a fault", [] { fail("the device is gone"); });
            }),
            "the device is gone");
  EXPECT_EQ(pass(), "the device is gone");
  EXPECT_EQ(model.cache().length(part.slot), 40);
  EXPECT_EQ(model.cache().cached_prefix(tokens).tokens, 0);
  model.cache().close(part.slot);
  EXPECT_EQ(model.cache().usage().cached, 0);
}

// A stranger's config.json must not have the program take memory for layers that are not there.
TEST_F(RefusingModel, ComparesFilesWithTheConfigurationFirst) {
  const Scratch scratch;
  const std::string folder = scratch.path("model/");
  with_saved_model(small_gpt2(), folder, 1);
  std::ofstream(folder + "config.json") << hf_config_text(small_gpt2({{"layers", 1 << 24}}));
  EXPECT_THAT(error_of([&] { open_inference_model(*device_, folder, {}); }),
              HasSubstr("config.json has 16777216 layers, and the files of weights 28 tensors"));
}

}  // namespace
}  // namespace zero::testing
