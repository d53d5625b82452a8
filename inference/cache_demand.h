// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace zero {

/// Tokens of a request, at most; all requests arrive together.
struct RequestLength {
  std::int64_t prompt = 1;
  std::int64_t answer = 1;
  std::int64_t priority = 0;  ///< GenerationRequest::priority

  std::int64_t tokens() const { return prompt + answer; }
};

/// How requests are computed.
struct RequestPasses {
  std::int64_t slots = 1;  ///< requests at once
  std::int64_t rows = 256;
  std::int64_t block_tokens = 16;
  std::int64_t guesses = 0;  ///< read ahead of a request that generates, at most
};

/// Blocks of a cache for requests whose lengths are known.
struct CacheDemand {
  /// The most that are used or kept free for growth at once, if each answer takes all its tokens
  /// and prompts share no beginning: with so many the scheduler decides as with any more. Answers
  /// that end earlier may meet in another way and need more; the scheduler then preempts.
  std::int64_t at_once = 0;
  std::int64_t longest = 0;     ///< of the longest request: without, it cannot be answered
  std::int64_t contiguous = 0;  ///< `longest` for each slot: what a cache without blocks reserves
  std::int64_t all = 0;         ///< of all requests together: more can hold nothing
};

/// Goes through the passes in which Scheduler would compute the requests. Zeros without requests.
/// Takes time for each request and each part of a prompt, not for each token of an answer.
CacheDemand cache_demand(std::span<const RequestLength> requests, const RequestPasses& passes);

}  // namespace zero
