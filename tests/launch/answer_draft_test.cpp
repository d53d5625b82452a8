// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// What a model that guesses takes beside the one that answers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "inference/inference_model.h"
#include "launch/generate/answer_models.h"
#include "launch/generate/answer_plan.h"
#include "launch/generate/answer_ranks.h"
#include "launch/generate/generate_flags.h"
#include "launch/process/quantity.h"
#include "tests/errors.h"
#include "tests/launch/saved_weights.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

AnswerPlan plan_of_one(const GenerateFlags& flags) {
  return plan_answers({.flags = flags,
                       .folder = flags.model,
                       .requests = {{1, 15}},
                       .tell = [](const std::string& /*line*/) {}});
}

/// Plans of a Llama of 16 blocks, for which one of two guesses; of both there is a config.json.
class DraftPlans : public ::testing::Test {
 protected:
  DraftPlans() {
    std::string config = file_bytes(ZERO_RECORDED_FILES "/llama_tiny/config.json");
    small_.write("config.json", config);
    const std::string layers = "\"num_hidden_layers\": ";
    config.replace(config.find(layers), layers.size() + 1, layers + "16");
    large_.write("config.json", config);
    flags_.model = large_.path();
    flags_.draft = small_.path();
    flags_.plan = true;
    flags_.requests = 1;
    flags_.given = {"--dtype"};
  }
  AnswerPlan plan() const { return plan_of_one(flags_); }
  /// What the plan's text says is left of the limit, and what that would hold.
  std::string room() const {
    const std::string text = plan_text(plan(), flags_);
    return text.substr(text.find(", of which "));
  }

  Scratch large_;
  Scratch small_;
  GenerateFlags flags_;
};

TEST_F(DraftPlans, HaveTheBytesOfBothModels) {
  const AnswerPlan both = plan();
  ASSERT_GT(both.draft.weights, 0);
  EXPECT_LT(both.draft.weights, both.memory.weights);
  EXPECT_EQ(both.of_device(), both.memory.total() + both.draft.total());
  EXPECT_THAT(plan_text(both, flags_),
              HasSubstr(fmt::format("\n{:<12} {}\n", "draft", memory_cells(both.draft))));
  flags_.memory_limit = both.of_device();
  EXPECT_EQ(plan().shortage, "");
  --flags_.memory_limit;
  EXPECT_THAT(plan().shortage, HasSubstr("short by 1 B"));
}

// With a limit that is larger by what the draft takes, as much is left for the model that answers.
TEST_F(DraftPlans, LeaveTheDraftsBytesToNoRequest) {
  const AnswerPlan both = plan();
  constexpr std::int64_t kLeft = std::int64_t{2} << 20;
  flags_.memory_limit = both.of_device() + kLeft;
  const std::string beside_model = room();
  EXPECT_THAT(beside_model, HasSubstr(", of which 2.00 MiB are left: "));
  flags_.draft = "prompt";  // which takes nothing, and guesses as many tokens
  flags_.memory_limit = both.memory.total() + kLeft;
  EXPECT_EQ(room(), beside_model);
}

// Before memory is taken of either.
TEST(DraftModels, TakeWhatIsAvailableTogether) {
  const SavedWeights saved;
  const GenerateFlags flags{.model = saved.folder(), .device = "cpu", .draft = saved.folder()};
  const AnswerPlan plan = plan_of_one(flags);
  const std::int64_t bytes = plan.memory.total() + plan.draft.total();
  ASSERT_GT(plan.draft.total(), 0);
  const auto alone = local::single();
  AnswerRanks ranks(*alone, nullptr, 1, 1);
  const auto taken = [&](std::int64_t available) {
    std::string lines;
    AnswerModels models({.flags = flags,
                         .folder = flags.model,
                         .plan = plan,
                         .ranks = ranks,
                         .available = available,
                         .say = [&](const std::string& line) { lines += line; }});
    EXPECT_THAT(lines, HasSubstr("\ndraft: model of "));
    return models.model().device().ledger().snapshot().peak_total;
  };
  EXPECT_EQ(taken(bytes), bytes);
  EXPECT_THAT(error_of([&] { taken(bytes - 1); }),
              AllOf(HasSubstr("out of memory before the start: "),
                    HasSubstr(size_text(bytes) + " are needed")));
}

}  // namespace
}  // namespace zero::testing
