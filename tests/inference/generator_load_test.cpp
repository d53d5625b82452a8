// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <stdexcept>
#include <utility>

#include "tests/inference/generator_fixture.h"

namespace zero::testing {
namespace {

TEST_F(Generators, AnswersDoNotDependOnTheRequestsBesideThem) {
  constexpr int kRequests = 24;
  std::vector<GeneratedAnswer> expected;
  for (int i = 0; i < kRequests; ++i) expected.push_back(alone(request(i)));
  const InferenceOptions few{.requests = 4, .request_tokens = 100, .rows = 4};
  const InferenceOptions odd{.requests = 5, .request_tokens = 100, .rows = 33};
  const InferenceOptions all{.requests = 24, .request_tokens = 100, .rows = 300};
  InferenceOptions one_block = odd;  // for a whole request
  one_block.block_tokens = 7 * kCacheChunk;
  InferenceOptions large_blocks = all;
  large_blocks.block_tokens = 48;
  InferenceOptions little_memory = all;  // an eighth of what all need
  little_memory.cache_tokens = 7 * kCacheChunk;
  InferenceOptions host_memory = little_memory;
  host_memory.host_tokens = 20 * kCacheChunk;
  struct Case {
    const char* name;
    InferenceOptions options;
  };
  for (const Case& each :
       {Case{"few", few}, Case{"odd", odd}, Case{"all", all}, Case{"one block", one_block},
        Case{"large blocks", large_blocks}, Case{"little memory", little_memory},
        Case{"host memory", host_memory}}) {
    answers_.clear();
    const auto model = open(each.options);
    Generator generator(*model);
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
  std::vector<GeneratedAnswer> expected;
  for (int i = 0; i < kRequests; ++i) expected.push_back(alone(request(i)));
  const Scratch scratch;
  with_saved_model(small_gpt2({{"layers", 1}}), scratch.path("other/"), 1);
  const InferenceOptions options{.requests = 5,
                                 .request_tokens = 100,
                                 .cache_tokens = 256,
                                 .host_tokens = 256,
                                 .rows = 40,
                                 .logit_rows = 17};
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
    const Generator::DraftStats drafts = generator.draft_stats();
    EXPECT_GT(drafts.proposed, 0);
    EXPECT_LE(drafts.accepted, drafts.proposed);
    if (drafter == &same) {
      // All but those behind an end.
      EXPECT_GT(drafts.accepted, drafts.proposed * 9 / 10);
    }
  }
  EXPECT_EQ(same_model->cache().free_slots(), 5);
  EXPECT_EQ(other_model->cache().free_slots(), 3);
  EXPECT_TRUE(random.open.empty());
}

/// 256 requests of 1 to 140 tokens that arrive at random, of which a tenth is cancelled at some
/// point, where memory holds an eighth of what could run at once.
class Load : public Generators {
 protected:
  static constexpr int kRequests = 256;

  Load() {
    std::int64_t arrival = 0;
    for (int i = 0; i < kRequests; ++i) {
      const std::int64_t all = 2 + below(139);
      GenerationRequest made = request(i);
      made.prompt =
          prompt_of(1 + below(static_cast<unsigned>(all - 1)), i % 50);  // as others begin
      made.max_tokens = all - std::ssize(made.prompt);
      made.priority = below(3);
      asked_.push_back(made);
      arrival += static_cast<std::int64_t>(std::exponential_distribution<double>(0.3)(random_));
      arrivals_.push_back(arrival);
      cancels_.push_back(below(10) == 0 ? arrival + below(40) : -1);
    }
  }
  /// All answers into answers_.
  KeyValueCache::Usage answer(std::int64_t host_tokens) {
    const auto model = open({.requests = 32,
                             .request_tokens = 150,
                             .cache_tokens = 4 * 150,
                             .host_tokens = host_tokens,
                             .rows = 64,
                             .logit_rows = 64});
    NgramDrafter drafter;
    Generator generator(*model, {.aging = 100, .drafter = &drafter});
    std::vector<RequestId> ids;
    for (std::int64_t step = 0; std::ssize(ids) < kRequests || !generator.idle(); ++step) {
      while (std::ssize(ids) < kRequests && arrivals_[ids.size()] <= step) {
        const auto i = static_cast<int>(ids.size());
        ids.push_back(generator.submit(asked_[ids.size()], recording(i)));
      }
      for (std::size_t i = 0; i < ids.size(); ++i) {
        if (cancels_[i] == step) generator.cancel(ids[i]);
      }
      generator.step();
    }
    EXPECT_GT(generator.scheduler().preemptions(), 0);
    EXPECT_EQ(model->cache().usage().used, 0);
    return model->cache().usage();
  }
  std::vector<GeneratedAnswer> each_alone() {
    const auto single = open({.request_tokens = 150, .rows = 150});
    std::vector<GeneratedAnswer> all;
    for (const GenerationRequest& each : asked_) {
      Generator one(*single);
      one.submit(each, recording(-1));
      run(one);
      all.push_back(std::exchange(answers_[-1], {}));
    }
    return all;
  }

  std::mt19937 random_{11};
  std::vector<GenerationRequest> asked_;
  std::vector<std::int64_t> arrivals_, cancels_;  // steps; -1: not cancelled

 private:
  std::int64_t below(unsigned most) { return static_cast<std::int64_t>(random_() % most); }
};

// A beginning of it, if it was cancelled. With host memory, less of it is read again.
TEST_F(Load, EveryAnswerIsThatOfItsRequestAlone) {
  const std::vector<GeneratedAnswer> expected = each_alone();
  std::int64_t read = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t host_tokens : {0, 320, 3200}) {
    answers_.clear();
    const KeyValueCache::Usage usage = answer(host_tokens);
    EXPECT_LT(usage.appended, read) << host_tokens;
    read = usage.appended;
    EXPECT_EQ(usage.moved_back > 0, host_tokens > 0);
    int cancelled = 0;
    for (int i = 0; i < kRequests; ++i) {
      const GeneratedAnswer& found = answers_.at(i);
      const GeneratedAnswer& alone = expected[static_cast<std::size_t>(i)];
      if (found.end.reason == FinishReason::cancelled) {
        ++cancelled;
        ASSERT_LE(found.ids.size(), alone.ids.size());
        EXPECT_TRUE(std::equal(found.ids.begin(), found.ids.end(), alone.ids.begin())) << i;
      } else {
        EXPECT_TRUE(found.same_tokens(alone)) << i;
      }
    }
    EXPECT_GT(cancelled, 5);
  }
}

/// A drafter that fails after some steps.
class FailingDrafter final : public Drafter {
 public:
  void propose(std::span<Draft> drafts) override {
    if (++calls > 3) throw std::runtime_error("no more guesses");
    for (Draft& draft : drafts) draft.guessed = {1};
  }
  void end(RequestId /*request*/) override {}

  int calls = 0;
};

TEST_F(Generators, AFailingDrafterEndsGuessesAndNoAnswer) {
  const GenerationRequest asked{.prompt = prompt_of(20, 4), .max_tokens = 30, .sampling = {}};
  const GeneratedAnswer expected = alone(asked);
  const auto model = open({.request_tokens = 100, .rows = 50, .logit_rows = 5});
  FailingDrafter drafter;
  Generator generator(*model, {.drafter = &drafter});
  generator.submit(asked, recording(0));
  run(generator);
  EXPECT_TRUE(answers_[0].same_tokens(expected));
  EXPECT_EQ(generator.draft_stats().error, "no more guesses");
  EXPECT_EQ(drafter.calls, 4);
}

// Requests begin alike, so that opening one in the drafter's little cache takes blocks that others
// have trimmed and may want again.
TEST_F(Generators, ADrafterOfLittleMemoryGuessesForSome) {
  const auto drafting =
      open({.requests = 4, .request_tokens = 100, .cache_tokens = 112, .rows = 100});
  const auto model = open({.requests = 4, .request_tokens = 100, .rows = 300, .logit_rows = 300});
  ModelDrafter drafter(*drafting);
  Generator generator(*model, {.drafter = &drafter, .draft_tokens = 60});
  for (int i = 0; i < 40; ++i) {
    GenerationRequest asked = request(i);
    asked.prompt = prompt_of(40, i % 3);
    asked.prompt.resize(static_cast<std::size_t>(20 + i % 20));
    generator.submit(asked, recording(i));
  }
  run(generator);
  EXPECT_EQ(generator.draft_stats().error, "");
  EXPECT_GT(generator.draft_stats().accepted, 0);
  EXPECT_EQ(drafting->cache().usage().used, 0);
}

// An answer that repeats itself takes fewer passes.
TEST_F(Generators, GuessesSavePasses) {
  const GenerationRequest asked{.prompt = prompt_of(20, 4), .max_tokens = 80, .sampling = {}};
  const GeneratedAnswer expected = alone(asked);
  const auto model = open({.request_tokens = 100, .rows = 50, .logit_rows = 5});
  const auto drafting = open({.request_tokens = 100, .rows = 50});
  ModelDrafter drafter(*drafting);
  Generator generator(*model, {.drafter = &drafter, .draft_tokens = 4});
  generator.submit(asked, recording(0));
  int passes = 0;
  for (; !generator.idle(); ++passes) generator.step();
  EXPECT_TRUE(answers_[0].same_tokens(expected));
  EXPECT_EQ(passes, 1 + 16);  // the prompt gives the first token, each other pass five
  EXPECT_EQ(generator.draft_stats().accepted, 63);
}

// All begin alike; each reads the beginning once that is not yet known.
TEST_F(Generators, ASharedBeginningIsReadAndStoredOnce) {
  const auto model = open({.requests = 32, .request_tokens = 120, .rows = 64});
  Generator generator(*model);
  const Tokens beginning = prompt_of(96, 3);
  std::vector<GeneratedAnswer> expected;
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
  EXPECT_LE(most, 96 / kCacheChunk + 32);
  // The second joins in the pass that reads the end of the beginning, and reads that end too.
  EXPECT_EQ(model->cache().usage().reused, 64 + 30 * 96);
}

}  // namespace
}  // namespace zero::testing
