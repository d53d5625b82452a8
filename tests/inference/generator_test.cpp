// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/generator.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/errors.h"
#include "tests/inference/generator_fixture.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(Generators, GreedyTokensHaveTheLargestLogitOfTheWholeSequenceReadAnew) {
  const GenerationRequest asked{.prompt = {5, 100, 7}, .max_tokens = 60, .sampling = {}};
  const GeneratedAnswer answer = alone(asked);
  ASSERT_EQ(answer.ids.size(), 60U);
  const auto model = open({.request_tokens = 100, .rows = 100});
  std::vector<std::uint32_t> tokens = asked.prompt;
  for (std::size_t i = 0; i < answer.ids.size(); ++i) {
    const std::int64_t slot = model->cache().open();
    const InferenceModel::Part part{slot, tokens};
    model->forward(std::span(&part, 1));
    model->cache().close(slot);
    const auto logits = model->logits(0);
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    ASSERT_EQ(answer.ids[i], static_cast<std::uint32_t>(best)) << "token " << i;
    tokens.push_back(answer.ids[i]);
  }
}

TEST_F(Generators, RequestsEndAtLengthEndTokenStopAndCancel) {
  const GeneratedAnswer free = alone({.prompt = {9, 8}, .max_tokens = 30, .sampling = {}});
  EXPECT_EQ(free.end.reason, FinishReason::length);
  EXPECT_EQ(free.end.generated, 30);
  EXPECT_GT(free.end.first_token, 0);
  EXPECT_GE(free.end.total, free.end.first_token);

  const std::uint32_t end = free.ids[9];
  const auto first = std::ranges::find(free.ids, end) - free.ids.begin();
  const GeneratedAnswer ended =
      alone({.prompt = {9, 8}, .max_tokens = 30, .sampling = {}, .end_tokens = {316, end}});
  EXPECT_EQ(ended.end.reason, FinishReason::end_token);
  EXPECT_EQ(ended.ids.size(), static_cast<std::size_t>(first) + 1);

  const auto model = open({.requests = 2, .request_tokens = 100, .rows = 20});
  Generator generator(*model);
  generator.submit({.prompt = {9, 8}, .max_tokens = 30, .sampling = {}},
                   recording(1, [](const GeneratedAnswer& so_far) {
                     return so_far.ids.size() == 4 ? Flow::stop : Flow::more;
                   }));
  const RequestId running =
      generator.submit({.prompt = {9, 8}, .max_tokens = 90, .sampling = {}}, recording(2));
  const RequestId waiting =
      generator.submit({.prompt = {9, 8}, .max_tokens = 90, .sampling = {}}, recording(3));
  generator.step();
  generator.step();
  generator.cancel(running);
  generator.cancel(waiting);
  run(generator);
  generator.cancel(running);  // ended: nothing happens
  EXPECT_EQ(answers_[1].end.reason, FinishReason::stopped);
  EXPECT_EQ(answers_[1].ids.size(), 4U);
  EXPECT_EQ(answers_[2].end.reason, FinishReason::cancelled);
  EXPECT_EQ(answers_[2].end.generated, 2);
  EXPECT_EQ(answers_[3].end.reason, FinishReason::cancelled);
  EXPECT_EQ(answers_[3].end.generated, 0);
  EXPECT_EQ(model->cache().free_slots(), 2);
}

/// Has no guess.
class SilentDrafter final : public Drafter {
 public:
  void propose(std::span<Draft> /*drafts*/) override {}
  void end(RequestId /*request*/) override {}
};

TEST_F(Generators, AStepTellsWhetherItGuessesReadsPromptsOrContinuesThem) {
  using ::testing::ElementsAre;
  const auto model = open({.requests = 2, .request_tokens = 100, .rows = 20});
  SilentDrafter drafter;
  std::vector<std::string> phases;
  Generator generator(*model, {.drafter = &drafter, .on_phase = [&](std::string_view phase) {
                                 phases.emplace_back(phase);
                               }});
  const GenerationRequest asked{.prompt = {5, 100, 7}, .max_tokens = 4, .sampling = {}};
  generator.submit(asked, recording(0));
  run(generator);
  // Behind the last token but one there is nothing to guess.
  EXPECT_THAT(phases, ElementsAre("prefill", "draft", "decode", "draft", "decode", "decode"));
  generator.step();
  EXPECT_EQ(phases.size(), 6U) << "nothing is done";
  phases.clear();
  generator.submit(asked, recording(1));
  generator.step();
  generator.submit({.prompt = {1, 2}, .max_tokens = 1, .sampling = {}}, recording(2));
  generator.step();
  EXPECT_THAT(phases, ElementsAre("prefill", "draft", "prefill")) << "beside one that goes on";
}

// One slot: whoever keeps it stops all that follow.
TEST_F(Generators, EveryEndGivesBackItsSlot) {
  const auto model = open({.requests = 1, .request_tokens = 100, .rows = 20});
  const GenerationRequest asked{.prompt = {9, 8}, .max_tokens = 20, .sampling = {}};
  const GeneratedAnswer expected = alone(asked);
  Generator generator(*model);
  const auto expect_answer = [&](int name) {
    generator.submit(asked, recording(name));
    for (int i = 0; i < 100 && !generator.idle(); ++i) generator.step();
    EXPECT_TRUE(answers_[name].same_tokens(expected)) << name;
  };
  expect_answer(1);

  const RequestId cancelled = generator.submit(asked, recording(2));
  generator.step();
  generator.cancel(cancelled);
  EXPECT_FALSE(generator.idle());
  generator.step();
  EXPECT_TRUE(generator.idle());
  EXPECT_EQ(answers_[2].end.reason, FinishReason::cancelled);
  expect_answer(3);

  GenerationCallbacks failing = recording(4);
  failing.on_token = [](const GeneratedToken&) -> Flow { fail("a full disk"); };
  generator.submit(asked, failing);
  generator.step();
  EXPECT_TRUE(generator.idle());
  EXPECT_EQ(answers_[4].end.reason, FinishReason::failed);
  EXPECT_THAT(answers_[4].end.error, HasSubstr("a full disk"));
  expect_answer(5);

  generator.cancel(1000);                                       // never was
  generator.cancel(generator.submit(asked, recording(6)) + 1);  // not yet
  for (int i = 0; i < 100 && !generator.idle(); ++i) generator.step();
  EXPECT_TRUE(answers_[6].same_tokens(expected));
  expect_answer(7);
}

TEST_F(Generators, IsIdleOnceTheLastCallbackHasReturned) {
  const auto model = open({.requests = 1, .request_tokens = 100, .rows = 20});
  Generator generator(*model);
  int ends = 0;
  const auto submit = [&] {
    return generator.submit({.prompt = {9}, .max_tokens = 2, .sampling = {}},
                            {.on_token = [](const GeneratedToken&) { return Flow::more; },
                             .on_end =
                                 [&](const GenerationEnd&) {
                                   EXPECT_FALSE(generator.idle());
                                   ++ends;
                                 }});
  };
  submit();
  run(generator);
  generator.cancel(submit());
  run(generator);
  EXPECT_EQ(ends, 2);
  EXPECT_THAT(
      error_of([&] { generator.submit({.prompt = {1}, .max_tokens = 1, .sampling = {}}, {}); }),
      HasSubstr("callbacks"));
}

TEST_F(Generators, ThreadsSubmitAndCancelWhileOneSteps) {
  std::vector<GeneratedAnswer> expected;
  for (int i = 0; i < 12; ++i) expected.push_back(alone(request(i)));
  answers_.clear();
  for (int i = 0; i < 12; ++i) answers_[i];  // callbacks of the stepping thread write, none inserts
  const auto model = open({.requests = 3, .request_tokens = 100, .rows = 16});
  Generator generator(*model);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < 12; i += 3) generator.submit(request(i), recording(i));
      generator.cancel(1000);
    });
  }
  int ended = 0;
  while (ended < 12) {
    generator.step();
    ended = static_cast<int>(std::ranges::count_if(
        answers_, [](const auto& answer) { return answer.second.end.total > 0; }));
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 12; ++i) {
    EXPECT_TRUE(answers_[i].same_tokens(expected[static_cast<std::size_t>(i)])) << i;
  }
}

TEST_F(Generators, ManyRequestsLeaveNothing) {
  const auto model = open({.requests = 8, .request_tokens = 20, .rows = 32});
  Generator generator(*model);
  const std::int64_t allocations = device_->ledger().allocations();
  for (int i = 0; i < 600; ++i) {
    generator.submit(
        {.prompt = {static_cast<std::uint32_t>(i % 317)}, .max_tokens = 1 + i % 4, .sampling = {}},
        recording(0));
  }
  run(generator);
  EXPECT_EQ(device_->ledger().allocations(), allocations);
  EXPECT_EQ(model->cache().free_slots(), 8);
  EXPECT_EQ(model->cache().usage().used, 0);
}

class CachesOfGenerators : public Generators, public ::testing::WithParamInterface<CacheFormat> {};
INSTANTIATE_TEST_SUITE_P(Formats, CachesOfGenerators,
                         ::testing::Values(CacheFormat::plain, CacheFormat::int8));

// The embedding of position 5 is no number: of two requests only the longer meets it, and it leaves
// NaN in its slot of the cache.
TEST_P(CachesOfGenerators, AModelThatGivesNoNumbersFailsThatRequestAlone) {
  const auto model = std::make_unique<InferenceModel>(
      *device_, small_gpt2(),
      InferenceOptions{.cache = GetParam(), .requests = 2, .request_tokens = 40, .rows = 20});
  model->load([](std::size_t tensor, std::int64_t begin, std::span<float> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::int64_t element = begin + static_cast<std::int64_t>(i);
      const bool broken = tensor == 1 && element / small_gpt2().width == 5;
      values[i] = broken ? std::numeric_limits<float>::quiet_NaN()
                         : static_cast<float>(element * element % 13 - 6) * 0.02F;
    }
  });
  Generator generator(*model);
  const GenerationRequest sound{.prompt = {2, 3}, .max_tokens = 4, .sampling = {}};
  generator.submit(sound, recording(0));
  generator.submit({.prompt = {2, 3, 4, 5, 6}, .max_tokens = 4, .sampling = {}}, recording(1));
  run(generator);
  EXPECT_EQ(answers_[0].end.reason, FinishReason::length);
  EXPECT_EQ(answers_[1].end.reason, FinishReason::failed);
  EXPECT_EQ(answers_[1].end.generated, 1);
  EXPECT_THAT(answers_[1].end.error, HasSubstr("nan"));
  generator.submit(sound, recording(2));
  generator.submit(sound, recording(3));
  run(generator);
  EXPECT_TRUE(answers_[2].same_tokens(answers_[0]));
  EXPECT_TRUE(answers_[3].same_tokens(answers_[0]));
}

TEST_F(Generators, RefusalsNameFoundAndExpected) {
  const auto model = open({.requests = 2, .request_tokens = 40, .rows = 20});
  Generator generator(*model);
  const auto refusal = [&](GenerationRequest asked) {
    return error_of([&] { generator.submit(std::move(asked), recording(0)); });
  };
  EXPECT_THAT(refusal({.prompt = {}, .max_tokens = 1, .sampling = {}}),
              HasSubstr("the prompt has no token, expected at least one"));
  EXPECT_THAT(refusal({.prompt = {1}, .max_tokens = 0, .sampling = {}}),
              HasSubstr("max_tokens is 0, expected at least 1"));
  EXPECT_THAT(refusal({.prompt = {1, 2}, .max_tokens = 39, .sampling = {}}),
              HasSubstr("the prompt has 2 tokens, and 39 are to follow; expected at most 40"));
  EXPECT_THAT(refusal({.prompt = {317}, .max_tokens = 1, .sampling = {}}),
              HasSubstr("the prompt has token 317, expected 0 to 316"));
  EXPECT_THAT(refusal({.prompt = {1}, .max_tokens = 1, .sampling = {.temperature = -1}}),
              HasSubstr("temperature"));
  GenerationRequest urgent{.prompt = {1}, .max_tokens = 1, .sampling = {}};
  urgent.priority = 1001;
  EXPECT_THAT(refusal(urgent), HasSubstr("priority is 1001, expected -1000 to 1000"));
  EXPECT_TRUE(generator.idle());
  const auto narrow = open({.requests = 5, .request_tokens = 40, .rows = 4});
  EXPECT_THAT(error_of([&] { const Generator refused(*narrow); }),
              HasSubstr("rows is 4, expected at least as many as requests = 5"));
}

}  // namespace
}  // namespace zero::testing
