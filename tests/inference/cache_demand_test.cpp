// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/cache_demand.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "bench/request_mix.h"
#include "inference/scheduler.h"

namespace zero::testing {
namespace {

using Lengths = std::vector<RequestLength>;

/// What a scheduler does for requests of these lengths, over a cache of so many blocks.
struct Schedule {
  std::int64_t passes = 0;
  std::int64_t preemptions = 0;
  std::int64_t most_used = 0;
  std::size_t ended = 0;
};
/// `answers`: tokens that each request takes in truth, at most those of its length.
Schedule scheduled(const Lengths& requests, const RequestPasses& with, std::int64_t blocks,
                   const std::vector<std::int64_t>& answers) {
  std::int64_t longest = 0;
  for (const RequestLength& each : requests) longest = std::max(longest, each.tokens());
  const auto device = cpu::open();
  KeyValueCache cache(
      *device, {.layers = 1,
                .slots = std::min(with.slots, std::ssize(requests)),
                .tokens = longest,
                .blocks = blocks,
                .shape = {.kv_heads = 1, .head_width = 1, .block_tokens = with.block_tokens}});
  Scheduler scheduler(cache, {.rows = with.rows});
  std::uint32_t next = 0;  // prompts share nothing
  for (std::size_t i = 0; i < requests.size(); ++i) {
    std::vector<std::uint32_t> prompt(static_cast<std::size_t>(requests[i].prompt));
    for (std::uint32_t& token : prompt) token = next++;
    scheduler.add(i + 1, std::move(prompt), requests[i].priority);
  }
  Schedule all;
  std::map<RequestId, std::int64_t> generated;
  while (!scheduler.empty()) {
    const std::vector<Scheduler::Part> plan = scheduler.plan();
    if (plan.empty()) break;
    ++all.passes;
    for (const auto& [id, part] : plan) cache.append(part.slot, part.tokens);
    for (const auto& [id, part] : plan) {
      if (part.logits == 0) continue;
      scheduler.push(id, next++);
      if (++generated[id] < answers[id - 1]) continue;
      scheduler.remove(id);
      ++all.ended;
    }
  }
  all.preemptions = scheduler.preemptions();
  all.most_used = cache.usage().most_used;
  return all;
}

std::vector<std::int64_t> answers_of(const Lengths& requests) {
  std::vector<std::int64_t> answers;
  for (const RequestLength& each : requests) answers.push_back(each.answer);
  return answers;
}

Lengths mix(std::int64_t requests) {
  Lengths all;
  for (const GenerationRequest& each : bench::RequestMix{.requests = requests}.made(50257)) {
    all.push_back({std::ssize(each.prompt), each.max_tokens});
  }
  return all;
}

TEST(CacheDemand, OfOneRequestIsItsOwnBlocks) {
  // 20 + 13 = 33 tokens, of which the last is never read: blocks for 32 would do, and 33 are kept.
  const Lengths one{{20, 13}};
  const CacheDemand demand = cache_demand(one, {.slots = 4, .block_tokens = 16});
  EXPECT_EQ(demand.longest, 3);
  EXPECT_EQ(demand.contiguous, 3);
  EXPECT_EQ(demand.all, 3);
  EXPECT_EQ(demand.at_once, 3);
}

TEST(CacheDemand, OfEqualRequestsIsContiguous) {
  // Four that begin together and grow together to 64 tokens: nothing to save.
  const Lengths equal(4, {1, 63});
  const CacheDemand demand = cache_demand(equal, {.slots = 4, .block_tokens = 16});
  EXPECT_EQ(demand.contiguous, 4 * 4);
  EXPECT_EQ(demand.at_once, 4 * 4);
}

TEST(CacheDemand, OfAShortRequestBesideALongOneIsTheirSum) {
  // 160 tokens are 10 blocks; a short one of 16 tokens ends when the long one has 17: 2 + 1 blocks
  // and one kept free for growth; then the long one alone takes 10.
  const Lengths two{{1, 159}, {1, 15}};
  const CacheDemand demand = cache_demand(two, {.slots = 2, .block_tokens = 16});
  EXPECT_EQ(demand.contiguous, 20);
  EXPECT_EQ(demand.all, 11);
  EXPECT_EQ(demand.at_once, 10);
}

TEST(CacheDemand, CountsTokensThatAreGuessedAhead) {
  // At 16 tokens of 40, 15 guesses more are read: up to 31. At 30, 9 are left to guess: 39.
  const Lengths one{{8, 32}};
  EXPECT_EQ(cache_demand(one, {.block_tokens = 16}).at_once, 3);
  const Lengths two(2, {8, 12});  // 20 tokens
  EXPECT_EQ(cache_demand(two, {.slots = 2, .block_tokens = 16}).at_once, 4);
  EXPECT_EQ(cache_demand(two, {.slots = 2, .block_tokens = 16, .guesses = 50}).at_once, 4);
}

TEST(CacheDemand, IsWhatTheSchedulerNeedsToDecideAsWithAnyMoreBlocks) {
  std::mt19937 random(std::random_device{}());
  const auto seed = random();
  SCOPED_TRACE(seed);
  random.seed(seed);
  for (int round = 0; round < 20; ++round) {
    Lengths requests(1 + random() % 40);
    for (RequestLength& each : requests) {
      each = {1 + static_cast<std::int64_t>(random() % 90),
              1 + static_cast<std::int64_t>(random() % 120),
              static_cast<std::int64_t>(random() % 3)};
    }
    const RequestPasses with{.slots = 1 + static_cast<std::int64_t>(random() % 9),
                             .rows = 16 + static_cast<std::int64_t>(random() % 200),
                             .block_tokens = 16 * (1 + static_cast<std::int64_t>(random() % 3))};
    const CacheDemand demand = cache_demand(requests, with);
    const std::vector<std::int64_t> answers = answers_of(requests);
    const Schedule planned = scheduled(requests, with, demand.at_once, answers);
    const Schedule contiguous = scheduled(requests, with, demand.contiguous, answers);
    EXPECT_EQ(planned.preemptions, 0);
    EXPECT_EQ(planned.passes, contiguous.passes);
    EXPECT_EQ(planned.most_used, contiguous.most_used);
    EXPECT_LE(planned.most_used, demand.at_once);
    EXPECT_EQ(planned.ended, requests.size());
    EXPECT_GE(demand.at_once, demand.longest);
    EXPECT_LE(demand.at_once, demand.contiguous);
  }
}

TEST(CacheDemand, OfTheMixOfZeroBenchIsAtMostThreeFifthsOfContiguous) {
  for (const std::int64_t count : {128, 256}) {
    const Lengths requests = mix(count);
    for (const std::int64_t slots : {8, 16, 32}) {
      const RequestPasses with{.slots = slots};
      const CacheDemand demand = cache_demand(requests, with);
      EXPECT_LE(10 * demand.at_once, 6 * demand.contiguous) << count << " by " << slots;
      const std::vector<std::int64_t> answers = answers_of(requests);
      EXPECT_EQ(scheduled(requests, with, demand.at_once, answers).passes,
                scheduled(requests, with, demand.contiguous, answers).passes);
    }
  }
}

// Answers that end early meet in another way than planned; all end, and hardly later.
TEST(CacheDemand, DoesForAnswersThatEndBeforeTheirTokensDo) {
  const Lengths requests = mix(128);
  const RequestPasses with{.slots = 16};
  const CacheDemand demand = cache_demand(requests, with);
  std::mt19937 random(3);
  for (int round = 0; round < 5; ++round) {
    std::vector<std::int64_t> answers = answers_of(requests);
    for (std::int64_t& each : answers) each = 1 + random() % each;
    const Schedule planned = scheduled(requests, with, demand.at_once, answers);
    const Schedule contiguous = scheduled(requests, with, demand.contiguous, answers);
    EXPECT_EQ(planned.ended, requests.size());
    EXPECT_LE(planned.passes, contiguous.passes + contiguous.passes / 50);
  }
}

TEST(CacheDemand, LessThanItEndsAllRequestsToo) {
  const Lengths requests = mix(64);
  const RequestPasses with{.slots = 16};
  const CacheDemand demand = cache_demand(requests, with);
  const Schedule least = scheduled(requests, with, demand.longest, answers_of(requests));
  EXPECT_EQ(least.ended, requests.size());
  EXPECT_GT(least.passes, scheduled(requests, with, demand.at_once, answers_of(requests)).passes);
}

TEST(CacheDemand, OfNoRequestIsNothing) {
  const CacheDemand demand = cache_demand({}, {});
  EXPECT_EQ(demand.at_once, 0);
  EXPECT_EQ(demand.all, 0);
}

}  // namespace
}  // namespace zero::testing
