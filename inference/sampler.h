// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace zero {

/// How the next token of one request is chosen from the model's logits. Applied in this order:
/// repetition penalty, temperature, top-k, top-p, min-p (the order of transformers' generate).
struct Sampling {
  double temperature = 0;         ///< 0: the largest logit (greedy); the filters then do nothing
  std::int64_t top_k = 0;         ///< keep that many most likely tokens; 0: all
  double top_p = 1;               ///< keep the most likely tokens whose probabilities reach it
  double min_p = 0;               ///< drop tokens below min_p times the largest probability
  double repetition_penalty = 1;  ///< divides positive, multiplies negative logits of known tokens
  std::uint64_t seed = 0;         ///< of this request
};

/// Throws zero::Error naming `request`, the setting, found and expected.
void validate(const Sampling& sampling, std::string_view request);

struct SampledToken {
  std::uint32_t id = 0;
  float log_probability = 0;  ///< of the logits as the model gave them, before any setting
};

/// The logarithm of the sum of e^logit. Throws zero::Error if a logit is NaN or +inf, or all are
/// -inf; -inf alone is a token without a part in it.
double log_sum(std::span<const float> logits);

/// Chooses tokens. One request's choice depends on its logits, context, settings and `position`
/// alone: its random number is a hash of seed and position. Ties go to the smaller id. Holds
/// scratch for one row; for one thread at a time.
class Sampler {
 public:
  explicit Sampler(std::int64_t vocabulary);

  /// `logits`: fp32, (vocabulary). `context`: prompt and generated tokens so far, for the penalty.
  /// `position`: of the chosen token, counted from the start of the prompt. Throws zero::Error if a
  /// logit is NaN or infinite, or none is finite; -inf is a token that is never chosen.
  SampledToken choose(std::span<const float> logits, std::span<const std::uint32_t> context,
                      const Sampling& sampling, std::uint64_t position);

 private:
  void penalise(std::span<const float> logits, std::span<const std::uint32_t> context,
                double penalty);
  std::size_t draw(std::span<const float> values, double largest, const Sampling& sampling,
                   double part);
  template <typename Measure>
  void keep_until(double target, Measure measure);

  std::size_t vocabulary_;
  std::vector<float> values_;         // logits after the penalty
  std::vector<double> weights_;       // e^((logit - largest) / temperature); 0: not to be drawn
  std::vector<std::uint32_t> order_;  // tokens to be sorted
};

}  // namespace zero
