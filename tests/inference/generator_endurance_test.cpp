// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>

#include <random>

#include "tests/inference/generator_fixture.h"

namespace zero::testing {
namespace {

/// What a generator holds between requests.
struct Held {
  MemorySnapshot ledger;
  std::int64_t allocations = 0;
  std::size_t heap = 0;  // bytes of malloc in use, by all of the process
};

/// Requests of mixed lengths: some begin alike, some are cancelled, some stop, a model guesses for
/// half of those that run, and the caches are too small for all.
class Endurance : public Generators {
 protected:
  /// Submits requests up to number `end` as slots become free, until none is left.
  void run_to(std::int64_t end) {
    while (submitted_ < end || !generator_.idle()) {
      while (submitted_ < end && generator_.scheduler().waiting() < 4 && open_ < 24) submit();
      generator_.step();
    }
  }
  void submit() {
    const std::int64_t number = submitted_++;
    Tokens prompt = prompt_of(1 + below(40), static_cast<int>(below(30)));
    prompt.back() = static_cast<std::uint32_t>(below(317));
    const RequestId id = generator_.submit(
        {.prompt = std::move(prompt),
         .max_tokens = 1 + below(6),
         .sampling = {.temperature = number % 2 == 0 ? 0 : 0.9, .seed = random_()},
         .priority = below(3)},
        {.on_token =
             [](const GeneratedToken& token) {
               return token.id % 5 == 0 ? Flow::stop : Flow::more;
             },
         .on_end =
             [this](const GenerationEnd& end) {
               --open_;
               ++ends_[end.reason];
             }});
    ++open_;
    if (below(10) == 0) generator_.cancel(id);
    if (number % 10 == 0 && number > 0) generator_.cancel(id - 3);
  }
  std::int64_t below(std::uint32_t most) { return static_cast<std::int64_t>(random_() % most); }
  Held held() const {
    return {device_->ledger().snapshot(), device_->ledger().allocations(), ::mallinfo2().uordblks};
  }

  std::mt19937 random_{3};
  const std::unique_ptr<InferenceModel> model_ = open({.requests = 8,
                                                       .request_tokens = 48,
                                                       .cache_tokens = 128,
                                                       .host_tokens = 256,
                                                       .rows = 48,
                                                       .logit_rows = 24});
  const std::unique_ptr<InferenceModel> guessing_ =
      open({.requests = 4, .request_tokens = 48, .cache_tokens = 96, .rows = 48});
  ModelDrafter drafter_{*guessing_};
  Generator generator_{*model_, {.aging = 16, .drafter = &drafter_, .draft_tokens = 2}};
  std::int64_t submitted_ = 0, open_ = 0;
  std::map<FinishReason, std::int64_t> ends_;
};

TEST_F(Endurance, TenThousandRequestsLeaveNothingBehind) {
  // 8 bytes a request: less than anything that could be left of one. What differs are the lengths
  // of tables and lists that are used again.
  constexpr std::size_t kGrowth = 64 << 10;
  run_to(100);
  const Held early = held();
  run_to(2000);
  const Held warm = held();
  run_to(10'000);
  const Held late = held();
  EXPECT_EQ(late.ledger.labels, early.ledger.labels);
  EXPECT_EQ(late.ledger.peak, early.ledger.peak);
  EXPECT_EQ(late.allocations, early.allocations);
  EXPECT_LE(late.heap, warm.heap + kGrowth);
  EXPECT_TRUE(generator_.scheduler().empty());
  EXPECT_EQ(generator_.scheduler().running() + generator_.scheduler().waiting(), 0);
  const KeyValueCache::Usage usage = model_->cache().usage();
  EXPECT_EQ(usage.used, 0);
  EXPECT_EQ(usage.tokens, 0);
  EXPECT_EQ(model_->cache().free_slots(), 8);
  EXPECT_EQ(guessing_->cache().usage().used, 0);
  EXPECT_EQ(guessing_->cache().free_slots(), 4);
  // All of it happened.
  EXPECT_EQ(open_, 0);
  EXPECT_GT(ends_[FinishReason::cancelled], 500);
  EXPECT_GT(ends_[FinishReason::stopped], 500);
  EXPECT_EQ(
      ends_[FinishReason::cancelled] + ends_[FinishReason::stopped] + ends_[FinishReason::length],
      10'000);
  EXPECT_EQ(generator_.draft_stats().error, "");
  EXPECT_GT(generator_.draft_stats().accepted, 1000);
  EXPECT_GT(generator_.scheduler().preemptions(), 100);
  EXPECT_GT(usage.reused, 1000);
  EXPECT_GT(usage.moved_back, 100);
  EXPECT_GT(usage.forgotten, 100);
}

}  // namespace
}  // namespace zero::testing
