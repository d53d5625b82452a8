// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "inference/sampler.h"

namespace zero {

using RequestId = std::uint64_t;

/// One prompt and how it is to be continued.
struct GenerationRequest {
  std::vector<std::uint32_t> prompt;  ///< at least one token
  std::int64_t max_tokens = 0;        ///< to generate; with the prompt at most request_tokens
  Sampling sampling;
  std::vector<std::uint32_t> end_tokens{};  ///< generating one of them ends the request
  std::int64_t priority = 0;  ///< -kMostPriority to kMostPriority; higher runs earlier
  static constexpr std::int64_t kMostPriority = 1000;
};

/// Why a request ended.
enum class FinishReason : std::uint8_t {
  length,     ///< max_tokens were generated
  end_token,  ///< one of end_tokens was generated
  stopped,    ///< on_token returned Flow::stop
  cancelled,
  failed,  ///< no token could be chosen, or the pass or on_token failed: GenerationEnd::error
};

struct GeneratedToken {
  RequestId request = 0;
  std::uint32_t id = 0;
  float log_probability = 0;
};

/// A request's end. Times are seconds since submit().
struct GenerationEnd {
  RequestId request = 0;
  FinishReason reason = FinishReason::length;
  std::int64_t generated = 0;  ///< tokens
  double first_token = 0;      ///< 0 if none was generated
  double total = 0;
  std::string error{};
};

/// What on_token has the generator do.
enum class Flow : std::uint8_t { more, stop };

/// Called by the thread in Generator::step(), which they may not call; they may submit() and
/// cancel(), and must not throw.
struct GenerationCallbacks {
  std::function<Flow(const GeneratedToken&)> on_token;
  std::function<void(const GenerationEnd&)> on_end;
};

}  // namespace zero
