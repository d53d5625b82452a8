// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/mixed_bits.h"
#include "inference/generation_request.h"

namespace zero::bench {

/// Random numbers of a seed.
class Random {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed) {}
  /// In [0, 1).
  double next() { return static_cast<double>(split_mix(seed_, counter_++) >> 11) * 0x1p-53; }
  double exponential(double mean) { return -mean * std::log1p(-next()); }

 private:
  std::uint64_t seed_;
  std::uint64_t counter_ = 0;
};

/// Requests of prompts and answers whose lengths are exponentially distributed around these means:
/// most are short, some are as long as the context. The same ones every time.
struct RequestMix {
  std::int64_t requests = 0;
  double prompt = 32;
  double answer = 64;
  std::int64_t longest = 512;  ///< tokens of a prompt with its answer

  std::vector<GenerationRequest> made(std::int64_t vocabulary) const {
    Random random(7);
    std::vector<GenerationRequest> all;
    for (std::int64_t i = 0; i < requests; ++i) {
      const auto length = [&](double mean) {
        const auto whole = 1 + static_cast<std::int64_t>(random.exponential(mean));
        return std::min(whole, longest / 2);
      };
      GenerationRequest request;
      request.prompt.resize(static_cast<std::size_t>(length(prompt)));
      for (std::uint32_t& token : request.prompt) {
        token = static_cast<std::uint32_t>(random.next() * static_cast<double>(vocabulary));
      }
      request.max_tokens = length(answer);
      all.push_back(std::move(request));
    }
    return all;
  }
};

}  // namespace zero::bench
