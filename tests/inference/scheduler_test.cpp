// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/scheduler.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/consecutive.h"
#include "tests/errors.h"

namespace zero::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Tokens = std::vector<std::uint32_t>;

/// A scheduler over a small cache, and a model that reads what it is given and always generates
/// token 7.
class Schedulers : public ::testing::Test {
 protected:
  void open(std::int64_t slots, std::int64_t blocks, const Scheduler::Options& options,
            std::int64_t host_blocks = 0) {
    scheduler_.reset();
    cache_.emplace(*device_, KeyValueCache::Size{.layers = 1,
                                                 .slots = slots,
                                                 .tokens = 96,
                                                 .blocks = blocks,
                                                 .host_blocks = host_blocks,
                                                 .shape = {.kv_heads = 1, .head_width = 1}});
    scheduler_.emplace(*cache_, options);
  }
  /// Requests of a step with their tokens, "id:tokens" and "!" behind those that generate.
  std::vector<std::string> step() {
    std::vector<std::string> read;
    std::int64_t rows = 0;
    for (const auto& [id, part] : scheduler_->plan()) {
      read.push_back(fmt::format("{}:{}{}", id, part.tokens.size(), part.logits > 0 ? "!" : ""));
      rows += std::ssize(part.tokens);
      const auto tokens = scheduler_->tokens(id).subspan(
          static_cast<std::size_t>(cache_->length(part.slot)), part.tokens.size());
      EXPECT_EQ(part.tokens.data(), tokens.data());
      EXPECT_EQ(part.logits > 0, tokens.data() + tokens.size() ==
                                     scheduler_->tokens(id).data() + scheduler_->tokens(id).size());
      cache_->append(part.slot, part.tokens);
      if (part.logits > 0) scheduler_->push(id, 7);
    }
    EXPECT_LE(rows, rows_);
    return read;
  }
  /// Different for each request, so that none shares another's blocks.
  static Tokens prompt(std::uint32_t id, std::size_t count) {
    return consecutive(1000 * id, count);
  }
  void add(std::uint32_t id, std::size_t count, std::int64_t priority = 0) {
    scheduler_->add(id, prompt(id, count), priority);
  }

  static constexpr std::int64_t kRows = 20;
  std::int64_t rows_ = kRows;
  const std::unique_ptr<Device> device_ = cpu::open();
  std::optional<KeyValueCache> cache_;
  std::optional<Scheduler> scheduler_;
};

TEST_F(Schedulers, PromptsAreReadInPartsBesideThoseThatGenerate) {
  open(3, 0, {.rows = kRows});
  add(1, 4);
  EXPECT_THAT(step(), ElementsAre("1:4!"));
  add(2, 50);
  add(3, 3);
  EXPECT_THAT(step(), ElementsAre("1:1!", "2:19"));
  EXPECT_THAT(step(), ElementsAre("1:1!", "2:19"));
  EXPECT_THAT(step(), ElementsAre("1:1!", "2:12!", "3:3!"));
  EXPECT_THAT(step(), ElementsAre("1:1!", "2:1!", "3:1!"));
  scheduler_->remove(1);
  scheduler_->remove(99);
  EXPECT_THAT(step(), ElementsAre("2:1!", "3:1!"));
  EXPECT_EQ(scheduler_->running(), 2);
}

TEST_F(Schedulers, TheLastInTheOrderIsPreemptedAndGoesOnLater) {
  open(3, 6, {.rows = kRows});  // 96 tokens
  add(1, 15);
  add(2, 15);
  step();  // 1 alone: 20 rows
  step();
  EXPECT_EQ(scheduler_->running(), 2);
  std::int64_t steps = 0;
  while (scheduler_->preemptions() == 0 && steps < 100) {
    step();
    ++steps;
  }
  EXPECT_THAT(step(), ElementsAre("1:1!"));  // 2 has been preempted
  EXPECT_EQ(scheduler_->waiting(), 1);
  const std::int64_t had = std::ssize(scheduler_->tokens(2));
  EXPECT_GT(had, 40);
  scheduler_->remove(1);
  // What the cache still knows of 2 is not read again.
  const auto plan = scheduler_->plan();
  ASSERT_EQ(plan.size(), 1U);
  EXPECT_EQ(plan[0].request, 2U);
  EXPECT_LT(std::ssize(plan[0].part.tokens), 20);
  EXPECT_EQ(cache_->length(plan[0].part.slot) + std::ssize(plan[0].part.tokens), had);
  EXPECT_EQ(plan[0].part.logits, 1);
}

TEST_F(Schedulers, NobodyPassesOneThatWaitsForBlocks) {
  open(3, 6, {.rows = 200});
  rows_ = 200;
  add(1, 60);
  add(2, 60);
  add(3, 1);
  EXPECT_THAT(step(), ElementsAre("1:60!"));
  EXPECT_THAT(step(), ElementsAre("1:1!"));
  EXPECT_EQ(scheduler_->waiting(), 2);
  scheduler_->remove(1);
  EXPECT_THAT(step(), ElementsAre("2:60!", "3:1!"));
}

TEST_F(Schedulers, AHigherPriorityComesFirstButNotForEver) {
  open(1, 0, {.rows = kRows, .aging = 10});
  add(1, 2);
  step();
  add(2, 2);
  add(3, 2, 1);
  // 3 counts as having come 10 steps before; before 1 too, which is preempted.
  EXPECT_THAT(step(), ElementsAre("3:2!"));
  EXPECT_EQ(scheduler_->preemptions(), 1);
  scheduler_->remove(3);
  EXPECT_THAT(step(), ElementsAre("1:3!"));
  scheduler_->remove(1);
  for (int i = 0; i < 10; ++i) step();  // 2 runs
  add(4, 2, 1);                         // 2 has come more than 10 steps ago
  EXPECT_THAT(step(), ElementsAre("2:1!"));
  scheduler_->remove(2);
  EXPECT_THAT(step(), ElementsAre("4:2!"));
}

// A request of one block that is as long as it can be needs no room to grow.
TEST_F(Schedulers, AFullCacheOfOneBlockARequestRunsThemAll) {
  scheduler_.reset();
  cache_.emplace(
      *device_, KeyValueCache::Size{.layers = 1,
                                    .slots = 8,
                                    .tokens = 96,
                                    .shape = {.kv_heads = 1, .head_width = 1, .block_tokens = 96}});
  rows_ = 100;
  scheduler_.emplace(*cache_, Scheduler::Options{.rows = 100});
  for (std::uint32_t id = 1; id <= 8; ++id) add(id, 5);
  EXPECT_EQ(step().size(), 8U);
}

// One of higher priority that would not fit even in place of all behind it preempts nobody.
TEST_F(Schedulers, NobodyIsPreemptedInVain) {
  open(3, 6, {.rows = 200});
  rows_ = 200;
  add(1, 40, 2);
  add(2, 10, 0);
  step();
  EXPECT_EQ(scheduler_->running(), 2);
  add(3, 60, 1);  // behind 1, before 2: 4 blocks, of which 3 are not 1's
  step();
  EXPECT_EQ(scheduler_->preemptions(), 0);
  EXPECT_EQ(scheduler_->running(), 2);
}

// What comes back from the host takes blocks as what is read does.
TEST_F(Schedulers, APromptKnownOnTheHostWaitsForBlocksToo) {
  open(2, 6, {.rows = 200}, 12);
  rows_ = 200;
  for (const auto& [id, count] : {std::pair(1U, 81), std::pair(2U, 60)}) {
    add(id, static_cast<std::size_t>(count));
    step();
    scheduler_->remove(id);
  }
  add(3, 20);
  step();
  EXPECT_EQ(cache_->available_blocks(), 4);
  EXPECT_EQ(cache_->cached_prefix(prompt(1, 81)).host_blocks, 3);
  scheduler_->add(4, prompt(1, 81));
  EXPECT_THAT(step(), ElementsAre("3:1!"));
  EXPECT_EQ(scheduler_->preemptions(), 0);
  scheduler_->remove(3);
  EXPECT_THAT(step(), ElementsAre("4:1!"));
  EXPECT_EQ(cache_->usage().reused, 80);
}

// A stream of requests of high priority, more than there are slots for.
TEST_F(Schedulers, NothingStarves) {
  open(2, 12, {.rows = kRows, .aging = 50});
  add(1, 30, -1);
  std::uint32_t next = 2;
  std::map<RequestId, int> generated;
  for (int i = 0; i < 2000 && !scheduler_->empty(); ++i) {
    while (scheduler_->running() + scheduler_->waiting() < 6 && i < 1000) add(next++, 20, 1);
    for (const auto& [id, part] : scheduler_->plan()) {
      cache_->append(part.slot, part.tokens);
      if (part.logits == 0) continue;
      scheduler_->push(id, 7);
      if (++generated[id] == 10) scheduler_->remove(id);
    }
    if (generated[1] == 10) {
      EXPECT_LT(i, 1000);
      return;
    }
  }
  ADD_FAILURE() << "request 1 has " << generated[1] << " tokens";
}

// 24 requests, of which an eighth fits at a time: all end, whatever is preempted. Of what moves to
// the host, nothing is read again, and nothing is decided by chance.
TEST_F(Schedulers, AllEndWithLittleMemory) {
  const auto decisions = [&](std::int64_t host_blocks) {
    open(24, 9, {.rows = 24}, host_blocks);
    for (std::uint32_t id = 1; id <= 24; ++id) add(id, 10 + 3 * id % 50);
    std::map<RequestId, int> generated;
    std::vector<std::string> all;
    while (!scheduler_->empty() && all.size() < 4000) {
      std::string& read = all.emplace_back();
      for (const auto& [id, part] : scheduler_->plan()) {
        read += fmt::format("{}:{} ", id, part.tokens.size());
        cache_->append(part.slot, part.tokens);
        if (part.logits == 0) continue;
        scheduler_->push(id, 7);
        if (++generated[id] == static_cast<int>(5 + id)) scheduler_->remove(id);
      }
    }
    EXPECT_TRUE(scheduler_->empty()) << all.size();
    EXPECT_GT(scheduler_->preemptions(), 0);
    EXPECT_LT(scheduler_->preemptions(), 100);
    EXPECT_EQ(cache_->usage().used, 0);
    return all;
  };
  const std::size_t without = decisions(0).size();
  const std::int64_t read = cache_->usage().appended;
  const std::vector<std::string> with = decisions(24 * 6);
  EXPECT_LT(cache_->usage().appended, read);
  EXPECT_GT(cache_->usage().moved_back, 0);
  EXPECT_EQ(cache_->usage().forgotten, 0);
  EXPECT_LE(with.size(), without);
  EXPECT_EQ(decisions(24 * 6), with);
}

TEST_F(Schedulers, RefusalsNameFoundAndExpected) {
  EXPECT_THAT(error_of([&] { open(5, 0, {.rows = 4}); }),
              HasSubstr("rows is 4, expected at least as many as requests = 5"));
  EXPECT_THAT(error_of([&] { open(1, 0, {.aging = 0}); }), HasSubstr("aging is 0"));
  open(1, 0, {});
  add(1, 2);
  EXPECT_THAT(error_of([&] { add(1, 2); }), HasSubstr("request 1 was added before"));
}

}  // namespace
}  // namespace zero::testing
