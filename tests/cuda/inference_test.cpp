// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Models that answer on a GPU, emulated or not, beside the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <utility>

#include "inference/generator.h"
#include "inference/inference_model.h"
#include "tests/inference/quantized_model.h"
#include "tests/inference/saved_model.h"
#include "tests/ops/ops_harness.h"

namespace zero::testing {
namespace {

using Tokens = std::vector<std::uint32_t>;
using Part = InferenceModel::Part;

struct Kind {
  DType dtype;
  WeightFormat format;
};
constexpr Kind kKinds[] = {{DType::fp32, WeightFormat::plain}, {DType::bf16, WeightFormat::plain},
                           {DType::fp16, WeightFormat::plain}, {DType::fp32, WeightFormat::int8},
                           {DType::fp32, WeightFormat::nf4},   {DType::fp32, WeightFormat::q4},
                           {DType::fp16, WeightFormat::int8},  {DType::bf16, WeightFormat::nf4},
                           {DType::fp16, WeightFormat::q4}};
std::string text_of(const Kind& kind) {
  return fmt::format("{}, format {}", name_of(kind.dtype), static_cast<int>(kind.format));
}

class GpuInference : public ::testing::TestWithParam<const char*> {
 protected:
  static DecoderShape config_named(std::string_view name) {
    if (name == "gpt2") return small_gpt2();
    if (name == "llama") return small_llama();
    if (name == "qwen2") return small_qwen2();
    return name == "qwen3" ? small_qwen3() : small_gemma3();
  }

  GpuInference() { with_saved_model(config_, folder_, 1); }

  std::int64_t vocabulary() const { return config_.vocabulary; }
  /// Logits of the last `wanted` tokens, read in passes of these lengths, the last of them
  /// repeated.
  static std::vector<float> logits(InferenceModel& model, std::span<const std::uint32_t> tokens,
                                   std::vector<std::size_t> lengths, std::size_t wanted = 10,
                                   std::int64_t slot = 0) {
    while (!model.cache().is_open(slot)) model.cache().open();
    std::vector<float> all;
    while (!tokens.empty()) {
      const std::size_t length = std::min(tokens.size(), lengths.front());
      const std::size_t rest = tokens.size() - length;
      const std::size_t known = rest >= wanted ? 0 : std::min(wanted - rest, length);
      const Part part{slot, tokens.first(length), static_cast<std::int64_t>(known)};
      model.forward(std::span(&part, 1));
      append(all, model, 0, known);
      tokens = tokens.subspan(length);
      if (lengths.size() > 1) lengths.erase(lengths.begin());
    }
    return all;
  }
  static void append(std::vector<float>& all, const InferenceModel& model, std::size_t first,
                     std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) {
      const auto row = model.logits(static_cast<std::int64_t>(i));
      all.insert(all.end(), row.begin(), row.end());
    }
  }

  std::unique_ptr<InferenceModel> open(Device& device, const Kind& kind,
                                       InferenceOptions options) const {
    options.dtype = kind.dtype;
    options.weights = kind.format;
    return open_inference_model(device, folder_, options);
  }

  const DecoderShape config_ = config_named(GetParam());
  Scratch scratch_;
  const std::string folder_ = scratch_.path("model/");
};

TEST_P(GpuInference, GivesTheCpusLogits) {
  const Tokens tokens = random_prompt(140, vocabulary(), 3);
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(text_of(kind));
    const auto gpu = open_tested_device();
    const auto host = cpu::open({.threads = 2});
    const InferenceOptions options{.rows = 140, .logit_rows = 40};
    const std::vector<float> found = logits(*open(*gpu, kind, options), tokens, {140}, 40);
    const std::vector<float> expected = logits(*open(*host, kind, options), tokens, {140}, 40);
    // Sums in another order round other activations up, in 8 or 11 bits; processors with
    // instructions of bf16 round the values of codes too.
    const double bf16 = kind.format == WeightFormat::plain ? 8e-3 : 3e-2;
    EXPECT_LT(relative_distance(found, expected), kind.dtype == DType::fp32   ? 2e-6
                                                  : kind.dtype == DType::fp16 ? 1e-3
                                                                              : bf16);
    for (std::size_t i = 0; kind.dtype == DType::fp32 && i < found.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i], 5e-5) << i;
    }
  }
}

TEST_P(GpuInference, GivesOfAFolderOfCodesTheBitsOfQuantizingAtLoad) {
  const Tokens tokens = random_prompt(20, vocabulary(), 3);
  for (const WeightFormat format : {WeightFormat::int8, WeightFormat::nf4, WeightFormat::q4}) {
    const std::string codes = scratch_.path(std::string(name_of(format)) + "/");
    save_codes(folder_, codes, {format, DType::fp32});
    const auto gpu = open_tested_device();
    const InferenceOptions options{.weights = format, .rows = 20, .logit_rows = 20};
    EXPECT_EQ(logits(*open_inference_model(*gpu, codes, options), tokens, {20}, 20),
              logits(*open_inference_model(*gpu, folder_, options), tokens, {20}, 20))
        << name_of(format);
  }
}

// Passes, sequences beside it, the length of blocks and shared blocks change no bit.
TEST_P(GpuInference, BitsDependOnTheSequenceAlone) {
  const Tokens tokens = random_prompt(146, vocabulary(), 5);
  const Tokens other = random_prompt(60, vocabulary(), 6);
  const auto all = std::span<const std::uint32_t>(tokens);
  for (const Kind& kind : {kKinds[1], kKinds[3], kKinds[7], kKinds[8]}) {
    SCOPED_TRACE(text_of(kind));
    std::optional<std::vector<float>> expected;
    for (const std::int64_t block : {16, 160, 32}) {
      if (block == 32 && kind.format != WeightFormat::plain) continue;
      SCOPED_TRACE(fmt::format("blocks of {}", block));
      const auto gpu = open_tested_device();
      const auto model =
          open(*gpu, kind, {.requests = 3, .block_tokens = block, .rows = 213, .logit_rows = 14});
      const std::vector<float> whole = logits(*model, tokens, {146});
      if (!expected) expected = whole;
      ASSERT_EQ(whole, *expected);
      model->cache().trim(0, 0);
      ASSERT_EQ(logits(*model, tokens, {40, 33, 70, 1}), *expected);
      // From a beginning that slot 1 shares or computes, beside two others.
      ASSERT_EQ(model->cache().open(tokens), 1);
      const auto known = static_cast<std::size_t>(model->cache().length(1));
      EXPECT_EQ(known, 146 / static_cast<std::size_t>(block) * block);
      ASSERT_EQ(model->cache().open(), 2);
      model->cache().trim(0, 139);
      const std::vector<Part> parts{
          {2, other, 1}, {1, all.subspan(known), 2}, {0, all.subspan(139), 7}};
      model->forward(parts);
      std::vector<float> beside;
      append(beside, *model, 1, 2);
      append(beside, *model, 3, 7);
      const auto last = [&](std::int64_t rows) {
        return std::vector<float>(expected->end() - rows * vocabulary(), expected->end());
      };
      std::vector<float> two = last(2);
      const std::vector<float> seven = last(7);
      two.insert(two.end(), seven.begin(), seven.end());
      ASSERT_EQ(beside, two);
    }
  }
}

TEST_P(GpuInference, ATrimmedSequenceGoesOnAsIfTheRestHadNeverBeen) {
  const auto gpu = open_tested_device();
  const auto model = open(*gpu, kKinds[0], {.requests = 2, .rows = 150, .logit_rows = 10});
  const Tokens tokens = random_prompt(140, vocabulary(), 9);
  const auto all = std::span<const std::uint32_t>(tokens);
  const std::vector<float> expected = logits(*model, tokens, {140});
  // Slot 1 shares blocks, whose copies slot 0 writes to behind the trim.
  ASSERT_EQ(model->cache().open(tokens), 1);
  logits(*model, all.subspan(128), {12}, 1, 1);
  model->cache().trim(0, 37);
  logits(*model, random_prompt(100, vocabulary(), 10), {100});
  model->cache().trim(0, 37);
  EXPECT_EQ(logits(*model, all.subspan(37), {3, 100}), expected);
  model->cache().trim(1, 130);
  EXPECT_EQ(logits(*model, all.subspan(130), {10}, 10, 1), expected);
}

TEST_P(GpuInference, BlocksThatWereInHostMemoryHaveTheSameBits) {
  const auto gpu = open_tested_device();
  const auto model = open(
      *gpu, kKinds[1],
      {.request_tokens = 60, .cache_tokens = 64, .host_tokens = 64, .rows = 60, .logit_rows = 10});
  KeyValueCache& cache = model->cache();
  const Tokens tokens = random_prompt(60, vocabulary(), 9);
  const auto all = std::span<const std::uint32_t>(tokens);
  const std::vector<float> expected = logits(*model, all, {60});
  for (std::uint32_t i = 1; i <= 3; ++i) {
    cache.close(0);
    logits(*model, random_prompt(60, vocabulary(), 9 + i), {17});  // takes all blocks
    cache.close(0);
    ASSERT_EQ(cache.open(all), 0);
    EXPECT_EQ(cache.length(0), 48);
    EXPECT_EQ(cache.usage().moved_back, 3 * i);
    EXPECT_EQ(logits(*model, all.subspan(48), {12}), expected);
  }
}

TEST_P(GpuInference, MemoryIsAsPlannedAndNothingIsAllocatedLater) {
  for (const Kind& kind : kKinds) {
    const InferenceOptions options{.dtype = kind.dtype,
                                   .weights = kind.format,
                                   .requests = 4,
                                   .request_tokens = 140,
                                   .host_tokens = 64,
                                   .rows = 70,
                                   .logit_rows = 10};
    const auto planning = planning::open(1, MemorySpace::device, DeviceKind::cuda);
    const InferenceModel planned(*planning, config_, options);
    const auto gpu = cuda::open();  // whose ledger is empty
    const auto model = open_inference_model(*gpu, folder_, options);
    auto labels = gpu->ledger().snapshot().labels;
    auto expected = planning->ledger().snapshot().labels;
    if (kind.format == WeightFormat::plain) {  // the workspace of the vendor's library
      labels.erase("activations/scratch");
      expected.erase("activations/scratch");
    }
    EXPECT_EQ(labels, expected) << text_of(kind);
    const std::int64_t allocations = gpu->ledger().allocations();
    logits(*model, random_prompt(140, vocabulary(), 3), {30, 1, 17, 16, 70});
    EXPECT_EQ(gpu->ledger().allocations(), allocations);
  }
}

// Sampled answers, admitted, preempted and read in chunks, are those of the CPU: their random
// numbers too.
TEST_P(GpuInference, GeneratesTheCpusTokens) {
  const auto answers = [&](Device& device) {
    const auto model = open(device, kKinds[0],
                            {.requests = 3, .request_tokens = 60, .cache_tokens = 96, .rows = 16});
    Generator generator(*model);
    std::vector<Tokens> all(5);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto seed = static_cast<std::uint32_t>(i);
      generator.submit({.prompt = random_prompt(5 + 7 * seed, vocabulary(), seed),
                        .max_tokens = 20,
                        .sampling = {.temperature = i == 0 ? 0 : 0.7, .seed = seed}},
                       {.on_token =
                            [&all, i](const GeneratedToken& token) {
                              all[i].push_back(token.id);
                              return Flow::more;
                            },
                        .on_end = [](const GenerationEnd&) {}});
    }
    while (!generator.idle()) generator.step();
    return all;
  };
  const auto gpu = open_tested_device();
  const auto host = cpu::open();
  EXPECT_EQ(answers(*gpu), answers(*host));
}

#ifdef ZERO_CUDA_EMULATED  // slow: these have all that the others have
const auto kFamilies = ::testing::Values("gpt2", "qwen2", "gemma3");
#else
const auto kFamilies = ::testing::Values("gpt2", "llama", "qwen2", "qwen3", "gemma3");
#endif
INSTANTIATE_TEST_SUITE_P(Families, GpuInference, kFamilies,
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace zero::testing
