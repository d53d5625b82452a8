// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/generator.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "inference/inference_model.h"
#include "tests/errors.h"
#include "tests/inference/tiny_models.h"

namespace zero::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<std::uint32_t>;

struct Answer {
  std::vector<std::uint32_t> ids;
  std::vector<float> log_probabilities;
  GenerationEnd end;

  bool same_tokens(const Answer& other) const {
    return ids == other.ids && log_probabilities == other.log_probabilities &&
           end.reason == other.end.reason && end.generated == other.end.generated;
  }
};

class Generators : public ::testing::Test {
 protected:
  Generators() { with_saved_model(small_gpt2(), folder_, 1); }

  std::unique_ptr<InferenceModel> open(const InferenceOptions& options) {
    return open_inference_model(*device_, folder_, options);
  }
  /// Callbacks that write down a request's answer in answers_[name].
  GenerationCallbacks recording(int name, const std::function<Flow(const Answer&)>& more = {}) {
    return {.on_token =
                [this, name, more](const GeneratedToken& token) {
                  Answer& answer = answers_[name];
                  answer.ids.push_back(token.id);
                  answer.log_probabilities.push_back(token.log_probability);
                  return more ? more(answer) : Flow::more;
                },
            .on_end = [this, name](const GenerationEnd& end) { answers_[name].end = end; }};
  }
  static void run(Generator& generator) {
    while (!generator.idle()) generator.step();
  }
  static Tokens prompt_of(std::int64_t count, int seed) {
    const std::vector<std::int32_t> ids =
        Batch::random(count, 317, static_cast<std::uint32_t>(seed)).inputs;
    return {ids.begin(), ids.end()};
  }
  /// Requests of all kinds: lengths, settings and seeds by number.
  static GenerationRequest request(int number) {
    GenerationRequest made{.prompt = prompt_of(1 + number * 7 % 60, number),
                           .max_tokens = 1 + number * 5 % 40,
                           .sampling = {.temperature = number % 3 == 0 ? 0 : 0.5 + 0.1 * number,
                                        .top_k = number % 4 == 1 ? 20 : 0,
                                        .top_p = number % 5 == 2 ? 0.9 : 1,
                                        .repetition_penalty = number % 2 == 0 ? 1 : 1.2,
                                        .seed = static_cast<std::uint64_t>(number)}};
    return made;
  }
  Answer alone(const GenerationRequest& request) {
    const auto model = open({.request_tokens = 120, .rows = 100});
    Generator generator(*model);
    generator.submit(request, recording(-1));
    run(generator);
    Answer answer = answers_[-1];
    answers_.erase(-1);
    return answer;
  }

  Scratch scratch_;
  const std::string folder_ = scratch_.path("model/");
  const std::unique_ptr<Device> device_ = cpu::open({.threads = 2});
  std::map<int, Answer> answers_;
};

TEST_F(Generators, GreedyTokensHaveTheLargestLogitOfTheWholeSequenceReadAnew) {
  const GenerationRequest asked{.prompt = {5, 100, 7}, .max_tokens = 60, .sampling = {}};
  const Answer answer = alone(asked);
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

TEST_F(Generators, AnswersDoNotDependOnTheRequestsBesideThem) {
  constexpr int kRequests = 24;
  std::vector<Answer> expected;
  for (int i = 0; i < kRequests; ++i) expected.push_back(alone(request(i)));
  const InferenceOptions few{.requests = 4, .request_tokens = 100, .rows = 4};
  const InferenceOptions odd{.requests = 5, .request_tokens = 100, .rows = 33};
  const InferenceOptions all{.requests = 24, .request_tokens = 100, .rows = 300};
  InferenceOptions contiguous = odd;
  contiguous.block_tokens = 0;
  InferenceOptions large_blocks = all;
  large_blocks.block_tokens = 48;
  InferenceOptions little_memory = all;  // an eighth of what all need
  little_memory.cache_tokens = 7 * kCacheGroup;
  struct Case {
    const char* name;
    InferenceOptions options;
    Batching batching = Batching::continuous;
  };
  for (const Case& each :
       {Case{"few", few}, Case{"odd", odd}, Case{"all", all}, Case{"contiguous", contiguous},
        Case{"large blocks", large_blocks}, Case{"little memory", little_memory},
        Case{"fixed batches", odd, Batching::fixed}}) {
    answers_.clear();
    const auto model = open(each.options);
    Generator generator(*model, {.batching = each.batching, .batch_delay = 0});
    for (int i = 0; i < kRequests; ++i) {
      GenerationRequest asked = request(i);
      asked.priority = i % 4;
      generator.submit(asked, recording(i));
      if (i % 3 == 0) generator.step();  // later ones join while others run
    }
    run(generator);
    for (int i = 0; i < kRequests; ++i) {
      EXPECT_TRUE(answers_[i].same_tokens(expected[static_cast<std::size_t>(i)]))
          << "request " << i << ", " << each.name;
    }
    if (each.options.cache_tokens > 0) {
      EXPECT_GT(generator.scheduler().preemptions(), 0) << each.name;
    }
    EXPECT_EQ(model->cache().usage().used, 0) << each.name;
  }
}

/// Guesses at random, right and wrong, few and too many.
class RandomDrafter final : public Drafter {
 public:
  void propose(std::span<Draft> drafts) override {
    for (Draft& draft : drafts) {
      open.insert(draft.request);
      draft.guessed.resize(random_() % 9);
      for (std::uint32_t& token : draft.guessed) token = random_() % 3;
    }
  }
  void end(RequestId request) override { open.erase(request); }

  std::set<RequestId> open;

 private:
  std::mt19937 random_{5};
};

TEST_F(Generators, NoAnswerDependsOnGuesses) {
  constexpr int kRequests = 24;
  std::vector<Answer> expected;
  for (int i = 0; i < kRequests; ++i) expected.push_back(alone(request(i)));
  const Scratch scratch;
  Gpt2Config other = small_gpt2();
  other.layers = 1;
  with_saved_model(other, scratch.path("other/"), 1);
  const InferenceOptions options{
      .requests = 5, .request_tokens = 100, .cache_tokens = 256, .rows = 40, .logit_rows = 17};
  const auto same_model = open({.requests = 5, .request_tokens = 100, .rows = 7});
  const auto other_model = open_inference_model(*device_, scratch.path("other/"),
                                                {.requests = 3, .request_tokens = 60, .rows = 50});
  NgramDrafter ngrams;
  ModelDrafter same(*same_model), different(*other_model);
  RandomDrafter random;
  for (Drafter* const drafter :
       std::initializer_list<Drafter*>{&ngrams, &same, &different, &random}) {
    answers_.clear();
    const auto model = open(options);
    Generator generator(*model, {.drafter = drafter, .draft_tokens = 6});
    for (int i = 0; i < kRequests; ++i) {
      GenerationRequest asked = request(i);
      asked.priority = i % 3;
      generator.submit(asked, recording(i));
      if (i % 5 == 0) generator.step();
    }
    run(generator);
    for (int i = 0; i < kRequests; ++i) {
      EXPECT_TRUE(answers_[i].same_tokens(expected[static_cast<std::size_t>(i)])) << i;
    }
    EXPECT_EQ(model->cache().usage().used, 0);
    const Generator::Guesses guesses = generator.guesses();
    EXPECT_GT(guesses.read, 0);
    EXPECT_LE(guesses.kept, guesses.read);
    if (drafter == &same) {
      // All but those behind an end.
      EXPECT_GT(guesses.kept, guesses.read * 9 / 10);
    }
  }
  EXPECT_EQ(same_model->cache().free_slots(), 5);
  EXPECT_EQ(other_model->cache().free_slots(), 3);
  EXPECT_TRUE(random.open.empty());
}

// 256 requests of 1 to 140 tokens arrive at random, memory holds an eighth of what could run at
// once, a tenth is cancelled at some point: every answer is a beginning of that of its request
// alone, and whole unless it was cancelled.
TEST_F(Generators, UnderLoadEveryAnswerIsThatOfItsRequestAlone) {
  constexpr int kRequests = 256;
  std::mt19937 random(11);
  const auto below = [&](unsigned most) { return static_cast<std::int64_t>(random() % most); };
  const auto single = open({.request_tokens = 150, .rows = 150});
  const auto model = open({.requests = 32,
                           .request_tokens = 150,
                           .cache_tokens = 4 * 150,
                           .rows = 64,
                           .logit_rows = 64});
  std::vector<GenerationRequest> asked;
  std::vector<std::int64_t> arrivals, cancels;  // steps; -1: not cancelled
  std::int64_t arrival = 0;
  for (int i = 0; i < kRequests; ++i) {
    const std::int64_t all = 2 + below(139);
    GenerationRequest made = request(i);
    made.prompt = prompt_of(1 + below(static_cast<unsigned>(all - 1)), i % 50);  // some begin alike
    made.max_tokens = all - std::ssize(made.prompt);
    made.priority = below(3);
    asked.push_back(made);
    arrival += static_cast<std::int64_t>(std::exponential_distribution<double>(0.3)(random));
    arrivals.push_back(arrival);
    cancels.push_back(below(10) == 0 ? arrival + below(40) : -1);
  }
  NgramDrafter drafter;
  Generator generator(*model, {.aging = 100, .drafter = &drafter});
  std::vector<RequestId> ids;
  for (std::int64_t step = 0; std::ssize(ids) < kRequests || !generator.idle(); ++step) {
    ASSERT_LT(step, 20000);
    while (std::ssize(ids) < kRequests && arrivals[ids.size()] <= step) {
      const auto i = static_cast<int>(ids.size());
      ids.push_back(generator.submit(asked[ids.size()], recording(i)));
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (cancels[i] == step) generator.cancel(ids[i]);
    }
    generator.step();
  }
  EXPECT_GT(generator.scheduler().preemptions(), 0);
  EXPECT_EQ(model->cache().usage().used, 0);
  const std::map<int, Answer> found = std::exchange(answers_, {});
  int cancelled = 0;
  for (int i = 0; i < kRequests; ++i) {
    Generator one(*single);
    one.submit(asked[static_cast<std::size_t>(i)], recording(i));
    run(one);
    const Answer& answer = found.at(i);
    const Answer& expected = answers_[i];
    if (answer.end.reason == FinishReason::cancelled) {
      ++cancelled;
      ASSERT_LE(answer.ids.size(), expected.ids.size());
      EXPECT_TRUE(std::equal(answer.ids.begin(), answer.ids.end(), expected.ids.begin())) << i;
    } else {
      EXPECT_TRUE(answer.same_tokens(expected)) << i;
    }
  }
  EXPECT_GT(cancelled, 5);
}

// An answer that repeats itself takes fewer passes.
TEST_F(Generators, GuessesSavePasses) {
  const GenerationRequest asked{.prompt = prompt_of(20, 4), .max_tokens = 80, .sampling = {}};
  const Answer expected = alone(asked);
  const auto model = open({.request_tokens = 100, .rows = 50, .logit_rows = 5});
  const auto drafting = open({.request_tokens = 100, .rows = 50});
  ModelDrafter drafter(*drafting);
  Generator generator(*model, {.drafter = &drafter, .draft_tokens = 4});
  generator.submit(asked, recording(0));
  int passes = 0;
  for (; !generator.idle(); ++passes) generator.step();
  EXPECT_TRUE(answers_[0].same_tokens(expected));
  EXPECT_EQ(passes, 1 + 16);  // the prompt gives the first token, each other pass five
  EXPECT_EQ(generator.guesses().kept, 63);
}

// All begin alike; each reads the beginning once that is not yet known.
TEST_F(Generators, ASharedBeginningIsReadAndStoredOnce) {
  const auto model = open({.requests = 32, .request_tokens = 120, .rows = 64});
  Generator generator(*model);
  const Tokens beginning = prompt_of(96, 3);
  std::vector<Answer> expected;
  for (int i = 0; i < 32; ++i) {
    GenerationRequest asked{.prompt = beginning, .max_tokens = 12, .sampling = {}};
    asked.prompt.push_back(static_cast<std::uint32_t>(i));
    expected.push_back(alone(asked));
    generator.submit(asked, recording(i));
  }
  std::int64_t most = 0;
  while (!generator.idle()) {
    generator.step();
    most = std::max(most, model->cache().usage().used);
  }
  for (int i = 0; i < 32; ++i) {
    EXPECT_TRUE(answers_[i].same_tokens(expected[static_cast<std::size_t>(i)])) << i;
  }
  EXPECT_LE(most, 96 / kCacheGroup + 32);
  // The second joins in the pass that reads the end of the beginning, and reads that end too.
  EXPECT_EQ(model->cache().usage().reused, 64 + 30 * 96);
}

// A request that runs alone is not held up by a batch that waits.
TEST_F(Generators, AFixedBatchWaitsForItsDelay) {
  const auto model = open({.requests = 2, .request_tokens = 40, .rows = 20});
  const GenerationRequest asked{.prompt = {3, 4}, .max_tokens = 5, .sampling = {}};
  const Answer expected = alone(asked);
  Generator generator(*model, {.batching = Batching::fixed, .batch_delay = 1e9});
  generator.submit(asked, recording(0));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(generator.step());
  generator.submit(asked, recording(1));
  EXPECT_TRUE(generator.step());
  run(generator);
  EXPECT_TRUE(answers_[0].same_tokens(expected));
  EXPECT_TRUE(answers_[1].same_tokens(expected));
  EXPECT_FALSE(generator.step());
}

TEST_F(Generators, RequestsEndAtLengthEndTokenStopAndCancel) {
  const Answer free = alone({.prompt = {9, 8}, .max_tokens = 30, .sampling = {}});
  EXPECT_EQ(free.end.reason, FinishReason::length);
  EXPECT_EQ(free.end.generated, 30);
  EXPECT_GT(free.end.first_token, 0);
  EXPECT_GE(free.end.total, free.end.first_token);

  const std::uint32_t end = free.ids[9];
  const auto first = std::ranges::find(free.ids, end) - free.ids.begin();
  const Answer ended =
      alone({.prompt = {9, 8}, .max_tokens = 30, .sampling = {}, .end_tokens = {316, end}});
  EXPECT_EQ(ended.end.reason, FinishReason::end_token);
  EXPECT_EQ(ended.ids.size(), static_cast<std::size_t>(first) + 1);

  const auto model = open({.requests = 2, .request_tokens = 100, .rows = 20});
  Generator generator(*model);
  generator.submit({.prompt = {9, 8}, .max_tokens = 30, .sampling = {}},
                   recording(1, [](const Answer& so_far) {
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

// One slot: whoever keeps it stops all that follow.
TEST_F(Generators, EveryEndGivesBackItsSlot) {
  const auto model = open({.requests = 1, .request_tokens = 100, .rows = 20});
  const GenerationRequest asked{.prompt = {9, 8}, .max_tokens = 20, .sampling = {}};
  const Answer expected = alone(asked);
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
      message_of([&] { generator.submit({.prompt = {1}, .max_tokens = 1, .sampling = {}}, {}); }),
      HasSubstr("callbacks"));
}

TEST_F(Generators, ThreadsSubmitAndCancelWhileOneSteps) {
  std::vector<Answer> expected;
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
    return message_of([&] { generator.submit(std::move(asked), recording(0)); });
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
  EXPECT_THAT(message_of([&] { const Generator refused(*narrow); }),
              HasSubstr("rows is 4, expected at least as many as requests = 5"));
}

}  // namespace
}  // namespace zero::testing
