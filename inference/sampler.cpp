// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/mixed_bits.h"
#include "ops/exponentials.h"

namespace zero {
namespace {

/// Logits that fit the cache beside their exponentials.
constexpr std::size_t kBlock = 512;

double sum_of(std::span<const double> weights) {
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Buckets of weights from 1 down to 2^-64, sixteen to an octave; the last one takes the rest.
constexpr std::size_t kBuckets = 1024;
inline std::size_t bucket_of(double weight) {
  const std::uint64_t below =
      std::bit_cast<std::uint64_t>(1.0) - std::bit_cast<std::uint64_t>(weight);
  return std::min<std::size_t>(below >> 48U, kBuckets - 1);
}

struct Largest {
  float value = -kInfinity;
  std::size_t id = 0;
};

/// `largest`, or the first of larger values: those of ids from `first_id`. Throws zero::Error if
/// one is NaN or infinite.
Largest largest_of(std::span<const float> values, Largest largest, std::size_t first_id) {
  const Extremes extremes = extremes_of(values);
  const auto find = [&](auto is_it) {
    const auto at = std::ranges::find_if(values, is_it);
    return Largest{*at, first_id + static_cast<std::size_t>(at - values.begin())};
  };
  if (!(extremes.least >= -kInfinity && extremes.largest < kInfinity)) {
    const auto [value, id] = find([](float logit) { return !(logit < kInfinity); });
    fail(
        "sampler: the logit of token {} is {}; expected a finite number or -inf: the weights are "
        "damaged, or the data type is too narrow for this model",
        id, value);
  }
  if (extremes.largest <= largest.value) return largest;
  return find([&](float logit) { return logit == extremes.largest; });
}

/// What one pass over the model's logits tells.
struct Summary {
  Largest largest;
  double log_sum = 0;  ///< of all exponentials
};

Summary summarise(std::span<const float> logits) {
  Largest largest;
  double sum = 0;  // of e^(logit - largest.value)
  std::array<double, kBlock> weights{};
  for (std::size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const auto block = logits.subspan(begin, std::min(kBlock, logits.size() - begin));
    const Largest before = largest;
    largest = largest_of(block, largest, begin);
    if (largest.value == -kInfinity) continue;
    const double most = largest.value;
    if (before.value < largest.value) {
      double factor = 0;
      exponentials(std::span(&before.value, 1), most, 1, std::span(&factor, 1));
      sum *= factor;
    }
    const auto of_block = std::span(weights).first(block.size());
    exponentials(block, most, 1, of_block);
    sum += sum_by_lanes(of_block);
  }
  ZERO_CHECK(largest.value > -kInfinity,
             "sampler: all {} logits are -inf; expected one finite logit at least", logits.size());
  return {largest, largest.value + std::log(sum)};
}

/// The first place where the running sum of `weights` exceeds `part` of the whole, part < 1: never
/// one whose weight is 0.
std::size_t place_of(std::span<const double> weights, double part) {
  const double target = part * sum_of(weights);
  double running = 0;
  std::size_t place = 0;
  while (place + 1 < weights.size() && (running += weights[place]) <= target) ++place;
  return place;
}

}  // namespace

double log_sum(std::span<const float> logits) { return summarise(logits).log_sum; }

void validate(const Sampling& sampling, std::string_view request) {
  const auto check = [&](bool good, std::string_view setting, auto found,
                         std::string_view expected) {
    ZERO_CHECK(good, "{}: {} is {}; expected {}", request, setting, found, expected);
  };
  check(std::isfinite(sampling.temperature) && sampling.temperature >= 0, "temperature",
        sampling.temperature, "a number from 0, which always takes the most likely token");
  check(sampling.top_k >= 0, "top_k", sampling.top_k,
        "a whole number from 0, which keeps all tokens");
  check(sampling.top_p > 0 && sampling.top_p <= 1, "top_p", sampling.top_p,
        "a number above 0, at most 1, which keeps all tokens");
  check(sampling.min_p >= 0 && sampling.min_p <= 1, "min_p", sampling.min_p,
        "a number from 0, which keeps all tokens, to 1");
  check(std::isfinite(sampling.repetition_penalty) && sampling.repetition_penalty > 0,
        "repetition_penalty", sampling.repetition_penalty, "a number above 0; 1 changes nothing");
}

Sampler::Sampler(std::int64_t vocabulary) : vocabulary_(static_cast<std::size_t>(vocabulary)) {
  ZERO_CHECK(vocabulary > 0, "sampler: the vocabulary has {} tokens; expected one at least",
             vocabulary);
}

SampledToken Sampler::choose(std::span<const float> logits, std::span<const std::uint32_t> context,
                             const Sampling& sampling, std::uint64_t position) {
  ZERO_CHECK(logits.size() == vocabulary_, "sampler: {} logits; expected one a token, {}",
             logits.size(), vocabulary_);
  const Summary summary = summarise(logits);
  Largest largest = summary.largest;
  std::span<const float> values = logits;
  if (sampling.repetition_penalty != 1) {
    penalise(logits, context, sampling.repetition_penalty);
    values = values_;
    largest = largest_of(values, {}, 0);
  }
  std::size_t id = largest.id;
  if (sampling.temperature > 0) {
    const double part =
        static_cast<double>(split_mix(split_mix(sampling.seed), position) >> 11U) * 0x1.0p-53;
    id = draw(values, largest.value, sampling, part);
  }
  return {static_cast<std::uint32_t>(id), static_cast<float>(logits[id] - summary.log_sum)};
}

/// Each token of the context once, however often it is there.
void Sampler::penalise(std::span<const float> logits, std::span<const std::uint32_t> context,
                       double penalty) {
  values_.assign(logits.begin(), logits.end());
  for (const std::uint32_t id : context) {
    ZERO_CHECK(id < vocabulary_, "sampler: the context has token {}; expected less than {}", id,
               vocabulary_);
    const double logit = logits[id];
    if (std::isinf(logit)) continue;
    constexpr double kMost = std::numeric_limits<float>::max();
    const double penalised = logit > 0 ? logit / penalty : logit * penalty;
    values_[id] = static_cast<float>(std::clamp(penalised, -kMost, kMost));
  }
}

/// Filters set weights to 0. `part` of the whole weight, in the order of ids, is the token's.
std::size_t Sampler::draw(std::span<const float> values, double largest, const Sampling& sampling,
                          double part) {
  weights_.resize(vocabulary_);
  exponentials(values, largest, sampling.temperature, weights_);
  if (sampling.top_k > 0) {
    keep_until(static_cast<double>(sampling.top_k), [](double) { return 1.0; });
  }
  if (sampling.top_p < 1) {
    keep_until(sampling.top_p * sum_of(weights_), [](double weight) { return weight; });
  }
  if (sampling.min_p > 0) {
    for (double& weight : weights_) weight = weight < sampling.min_p ? 0 : weight;
  }
  return place_of(weights_, part);
}

/// Keeps the largest weights, of equal ones the smaller ids, until the sum of their measures has
/// reached `target`. Sums them by bucket of the weight: only one bucket has to be sorted.
template <typename Measure>
void Sampler::keep_until(double target, Measure measure) {
  std::array<double, kBuckets> measures{};
  for (const double weight : weights_) measures[bucket_of(weight)] += measure(weight);
  double reached = 0;
  std::size_t border = 0;
  while (border + 1 < kBuckets && reached + measures[border] < target) {
    reached += measures[border++];
  }
  order_.clear();
  for (std::size_t id = 0; id < vocabulary_; ++id) {
    const std::size_t bucket = bucket_of(weights_[id]);
    if (bucket > border) weights_[id] = 0;
    if (bucket == border && weights_[id] > 0) order_.push_back(static_cast<std::uint32_t>(id));
  }
  std::ranges::sort(order_, [&](std::uint32_t a, std::uint32_t b) {
    return weights_[a] != weights_[b] ? weights_[a] > weights_[b] : a < b;
  });
  for (const std::uint32_t id : order_) {
    if (reached < target) {
      reached += measure(weights_[id]);
    } else {
      weights_[id] = 0;
    }
  }
}

}  // namespace zero
