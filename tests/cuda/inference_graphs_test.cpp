// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "inference/inference_model.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/submitted.h"
#include "tests/inference/quantized_model.h"
#include "tests/inference/saved_model.h"
#include "tests/ops/ops_harness.h"

// Passes of sizes that come again are captured on the emulated GPU, and replayed.
namespace zero::testing {
namespace {

using cuda::emulated::calls;
using Part = InferenceModel::Part;

std::uint32_t token_of(std::int64_t slot, std::int64_t position, std::int64_t vocabulary) {
  return static_cast<std::uint32_t>((7 * slot + 5 * position + 3) % vocabulary);
}

/// One pass: `count` more tokens of each of so many sequences; returns their last logits.
std::vector<float> pass(InferenceModel& model, std::int64_t sequences, std::int64_t count) {
  std::vector<std::vector<std::uint32_t>> tokens;
  std::vector<Part> parts;
  for (std::int64_t slot = 0; slot < sequences; ++slot) {
    while (!model.cache().is_open(slot)) model.cache().open();
    std::vector<std::uint32_t>& own = tokens.emplace_back();
    for (std::int64_t i = 0; i < count; ++i) {
      own.push_back(token_of(slot, model.cache().length(slot) + i, model.vocabulary()));
    }
  }
  for (std::int64_t slot = 0; slot < sequences; ++slot) {
    parts.push_back({slot, tokens[static_cast<std::size_t>(slot)], 1});
  }
  model.forward(parts);
  std::vector<float> logits;
  for (std::int64_t i = 0; i < sequences; ++i) {
    const auto row = model.logits(i);
    logits.insert(logits.end(), row.begin(), row.end());
  }
  return logits;
}

struct Answers {
  std::vector<std::vector<float>> logits;
  std::int64_t graphs = 0;  ///< launches
};

/// Prompts of 120 tokens, then one token a pass, past the first split of 128 positions; sequences
/// come and go.
Answers answers_of(const std::string& folder, InferenceOptions options) {
  cuda::emulated::reset();
  Answers answers;
  {
    const auto gpu = cuda::open();
    options.requests = 3;
    options.rows = 360;
    const auto model = open_inference_model(*gpu, folder, options);
    answers.logits.push_back(pass(*model, 3, 120));
    for (const std::int64_t sequences : {3, 3, 3, 2, 2, 3, 2, 3, 1, 1, 1, 3, 3, 3, 3}) {
      answers.logits.push_back(pass(*model, sequences, 1));
    }
    model->cache().close(1);
    answers.logits.push_back(pass(*model, 3, 2));  // slot 1 begins anew
    for (int i = 0; i < 4; ++i) answers.logits.push_back(pass(*model, 3, 1));
    answers.graphs = calls("cudaGraphLaunch");
  }
  cuda::emulated::reset();
  return answers;
}

TEST(GpuInferenceGraphs, ChangeNoBitOfAnswers) {
  for (const auto& [config, options] :
       {std::pair(small_gpt2(), InferenceOptions{.dtype = DType::bf16}),
        {small_llama(), InferenceOptions{.weights = WeightFormat::int8}}}) {
    const Scratch scratch;
    const std::string folder = scratch.path("model/");
    with_saved_model(config, folder, 1);
    InferenceOptions without = options;
    without.graphs = false;
    const Answers expected = answers_of(folder, without);
    EXPECT_EQ(expected.graphs, 0);
    const Answers found = answers_of(folder, options);
    EXPECT_GE(found.graphs, 8) << config.family->name;
    ASSERT_EQ(found.logits.size(), expected.logits.size());
    for (std::size_t i = 0; i < found.logits.size(); ++i) {
      EXPECT_EQ(found.logits[i], expected.logits[i]) << config.family->name << ", pass " << i;
    }
  }
}

/// One more token of each of four sequences, once its pass is captured.
Submitted submitted_by(bool graphs) {
  cuda::emulated::reset();
  Submitted one;
  {
    const auto gpu = cuda::open();
    const DecoderShape config = small_gpt2(
        {{"layers", 12}, {"width", 64}, {"heads", 4}, {"context", 32}, {"vocabulary", 70}});
    InferenceModel model(*gpu, config,
                         {.dtype = DType::bf16, .requests = 4, .rows = 16, .graphs = graphs});
    one = submitted_by_last(4, [&] { pass(model, 4, 1); });
  }
  cuda::emulated::reset();
  return one;
}

// docs/gpu.md has these figures, of as many blocks as GPT-2 124M has.
TEST(GpuInferenceGraphs, SubmitAPassAtOnce) {
  const Submitted one_by_one = submitted_by(false);
  const Submitted kept = submitted_by(true);
  EXPECT_EQ(one_by_one.graphs, 0);
  EXPECT_EQ(kept.graphs, 1);
  EXPECT_GT(one_by_one.launches, 12 * 9);
  EXPECT_EQ(kept.launches, 2) << "the tables' copy and the logits'";
  RecordProperty("pass",
                 fmt::format("{} calls with {} launches, {} with {} and a graph", one_by_one.calls,
                             one_by_one.launches, kept.calls, kept.launches));
}

}  // namespace
}  // namespace zero::testing
