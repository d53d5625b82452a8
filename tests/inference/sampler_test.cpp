// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "base/mixed_bits.h"
#include "tests/errors.h"

namespace zero {
namespace {

using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(std::size_t vocabulary, std::uint64_t seed, float spread) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

/// A token that may be chosen, and its probability.
struct Candidate {
  std::uint32_t id = 0;
  double probability = 0;
};

double log_sum_exp(const std::vector<double>& values) {
  const double most = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += std::exp(value - most);
  return most + std::log(sum);
}

/// The settings as their definitions say, one after another, over the whole sorted vocabulary.
std::vector<Candidate> reference(const std::vector<float>& logits,
                                 const std::vector<std::uint32_t>& context,
                                 const Sampling& sampling) {
  std::vector<double> values(logits.begin(), logits.end());
  for (const std::uint32_t id : std::set<std::uint32_t>(context.begin(), context.end())) {
    values[id] *= values[id] > 0 ? 1 / sampling.repetition_penalty : sampling.repetition_penalty;
    values[id] = static_cast<float>(values[id]);
  }
  std::vector<Candidate> kept;
  for (double& value : values) value /= sampling.temperature;
  const double all = log_sum_exp(values);
  for (std::uint32_t id = 0; id < values.size(); ++id) {
    kept.push_back({id, std::exp(values[id] - all)});
  }
  std::stable_sort(kept.begin(), kept.end(), [&](const Candidate& a, const Candidate& b) {
    return values[a.id] > values[b.id];
  });
  const auto normalise = [&] {
    double sum = 0;
    for (const Candidate& candidate : kept) sum += candidate.probability;
    for (Candidate& candidate : kept) candidate.probability /= sum;
  };
  if (sampling.top_k > 0) {
    kept.resize(std::min(kept.size(), static_cast<std::size_t>(sampling.top_k)));
  }
  normalise();
  double reached = 0;
  std::size_t count = 0;
  while (count < kept.size() && reached < sampling.top_p) reached += kept[count++].probability;
  kept.resize(count);
  const double least = sampling.min_p * kept[0].probability;
  std::erase_if(kept, [&](const Candidate& candidate) { return candidate.probability < least; });
  normalise();
  std::sort(kept.begin(), kept.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  return kept;
}

/// The candidate at `part` of the probability.
std::uint32_t drawn(const std::vector<Candidate>& candidates, double part) {
  for (const Candidate& candidate : candidates) {
    part -= candidate.probability;
    if (part < 0) return candidate.id;
  }
  return candidates.back().id;
}

TEST(Sampler, ChoosesAsAPlainReferenceDoes) {
  std::mt19937_64 random(1);
  const auto one_of = [&](std::vector<double> values) { return values[random() % values.size()]; };
  for (int round = 0; round < 3000; ++round) {
    const auto vocabulary = static_cast<std::size_t>(one_of({1, 2, 17, 256, 511, 513, 3001}));
    const auto logits =
        random_logits(vocabulary, random(), static_cast<float>(one_of({0.1, 2, 8})));
    std::vector<std::uint32_t> context(random() % 40);
    for (std::uint32_t& id : context) id = static_cast<std::uint32_t>(random() % vocabulary);
    const Sampling sampling{.temperature = one_of({0.05, 0.8, 1, 3}),
                            .top_k = static_cast<std::int64_t>(one_of({0, 0, 1, 5, 50, 600, 1e6})),
                            .top_p = one_of({1, 1, 0.1, 0.9, 0.999}),
                            .min_p = one_of({0, 0, 0.02, 0.5, 1}),
                            .repetition_penalty = one_of({1, 1, 1.3, 0.7}),
                            .seed = random()};
    const std::uint64_t position = random() % 4096;
    Sampler sampler(static_cast<std::int64_t>(vocabulary));
    const SampledToken token = sampler.choose(logits, context, sampling, position);
    const double part =
        static_cast<double>(split_mix(split_mix(sampling.seed), position) >> 11U) * 0x1p-53;
    ASSERT_EQ(token.id, drawn(reference(logits, context, sampling), part)) << "round " << round;
    ASSERT_NEAR(token.log_probability,
                logits[token.id] - log_sum_exp({logits.begin(), logits.end()}), 2e-6);
  }
}

/// Pearson's statistic of `draws` positions against the reference's probabilities; the number of
/// candidates less one is `freedom`.
double chi_square(const std::vector<float>& logits, const Sampling& sampling, int draws,
                  std::size_t& freedom) {
  Sampler sampler(std::ssize(logits));
  std::map<std::uint32_t, int> seen;
  for (int i = 0; i < draws; ++i) {
    ++seen[sampler.choose(logits, {}, sampling, static_cast<std::uint64_t>(i)).id];
  }
  double statistic = 0;
  const auto candidates = reference(logits, {}, sampling);
  for (const Candidate& candidate : candidates) {
    const double expected = candidate.probability * draws;
    statistic += (seen[candidate.id] - expected) * (seen[candidate.id] - expected) / expected;
  }
  EXPECT_EQ(seen.size(), candidates.size()) << "tokens that the settings drop were chosen";
  freedom = candidates.size() - 1;
  return statistic;
}

// Over positions and over seeds. The mean of the statistic is `freedom`, its deviation
// sqrt(2 freedom); the draws are the same in every run.
TEST(Sampler, DrawsTokensAsOftenAsTheirProbabilitiesSay) {
  const auto logits = random_logits(64, 3, 1);
  for (const Sampling& settings :
       {Sampling{.temperature = 1}, Sampling{.temperature = 0.7, .top_k = 20},
        Sampling{.temperature = 1.5, .top_p = 0.8}, Sampling{.temperature = 1, .min_p = 0.1}}) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      Sampling sampling = settings;
      sampling.seed = seed;
      std::size_t freedom = 0;
      const double statistic = chi_square(logits, sampling, 40000, freedom);
      const auto mean = static_cast<double>(freedom);
      EXPECT_NEAR(statistic, mean, 4 * std::sqrt(2 * mean)) << "seed " << seed;
    }
  }
  std::vector<int> seen(2);
  Sampler sampler(2);
  for (std::uint64_t seed = 0; seed < 40000; ++seed) {
    const std::vector<float> even{0, 0};
    ++seen[sampler.choose(even, {}, {.temperature = 1, .seed = seed}, 7).id];
  }
  EXPECT_NEAR(seen[0], 20000, 400);
}

TEST(Sampler, TemperatureZeroTakesTheFirstOfTheLargest) {
  Sampler sampler(1500);
  auto logits = random_logits(1500, 5, 1);
  logits[1100] = logits[700] = 9;
  EXPECT_EQ(sampler.choose(logits, {}, {}, 0).id, 700U);
  EXPECT_EQ(sampler.choose(logits, {}, {.top_k = 3, .top_p = 0.1, .seed = 9}, 5).id, 700U);
  for (std::uint64_t position = 0; position < 50; ++position) {
    EXPECT_EQ(sampler.choose(logits, {}, {.temperature = 2, .top_k = 1}, position).id, 700U);
    EXPECT_EQ(sampler.choose(logits, {}, {.temperature = 2, .top_p = 1e-9}, position).id, 700U);
  }
  EXPECT_EQ(
      sampler.choose(logits, std::vector<std::uint32_t>{700}, {.repetition_penalty = 1.1}, 0).id,
      1100U);
}

// Probabilities 1/2, 1/4, 1/8, 1/8: their sums are exact.
TEST(Sampler, TopPKeepsTheFewestTokensThatReachIt) {
  const float step = std::log(2.0F);
  const std::vector<float> logits{-3 * step, -step, -3 * step, -2 * step};
  const auto kept = [&](const Sampling& sampling) {
    std::set<std::uint32_t> ids;
    Sampler sampler(4);
    for (std::uint64_t i = 0; i < 400; ++i) ids.insert(sampler.choose(logits, {}, sampling, i).id);
    return ids;
  };
  using Ids = std::set<std::uint32_t>;
  EXPECT_EQ(kept({.temperature = 1, .top_p = 0.49}), (Ids{1}));
  EXPECT_EQ(kept({.temperature = 1, .top_p = 0.51}), (Ids{1, 3}));
  EXPECT_EQ(kept({.temperature = 1, .top_p = 0.76}), (Ids{0, 1, 3}));  // of equal ones the first
  EXPECT_EQ(kept({.temperature = 1, .top_p = 0.9}), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(kept({.temperature = 1, .top_k = 3}), (Ids{0, 1, 3}));
  EXPECT_EQ(kept({.temperature = 1, .top_k = 2, .top_p = 0.7}), (Ids{1, 3}));  // 2/3 and 1/3
  EXPECT_EQ(kept({.temperature = 1, .top_k = 2, .top_p = 0.6}), (Ids{1}));
  EXPECT_EQ(kept({.temperature = 1, .min_p = 0.3}), (Ids{1, 3}));
}

TEST(Sampler, PenaltyCountsARepeatedTokenOnce) {
  const std::vector<float> logits{2.0F, 1.5F, -1.0F};
  Sampler sampler(3);
  const auto greedy = [&](const std::vector<std::uint32_t>& context, double penalty) {
    return sampler.choose(logits, context, {.repetition_penalty = penalty}, 0).id;
  };
  EXPECT_EQ(greedy({0, 0, 0, 0}, 1.3), 0U);  // 2 / 1.3 is above 1.5, 2 / 1.3^2 below
  EXPECT_EQ(greedy({0}, 1.4), 1U);
  EXPECT_EQ(greedy({0, 1}, 1e30), 0U);
  EXPECT_EQ(greedy({2}, 1e-30), 0U);  // towards 0 only
  EXPECT_EQ(greedy({0, 1}, 1e-300), 0U);
  const std::vector<float> negative{-2.0F, -1.5F};
  EXPECT_EQ(
      Sampler(2).choose(negative, std::vector<std::uint32_t>{1}, {.repetition_penalty = 1.4}, 0).id,
      0U);
  // The probability stays that of the model.
  EXPECT_FLOAT_EQ(
      sampler.choose(logits, std::vector<std::uint32_t>{0}, {.repetition_penalty = 1.4}, 0)
          .log_probability,
      static_cast<float>(1.5 - log_sum_exp({2, 1.5, -1})));
}

// A sampler serves rows one after another: what it chose for others leaves no trace.
TEST(Sampler, AChoiceDependsOnItsOwnRowAlone) {
  const auto logits = random_logits(2000, 8, 2);
  const std::vector<std::uint32_t> context{4, 7};
  const Sampling sampling{.temperature = 1, .top_p = 0.95, .repetition_penalty = 1.2, .seed = 42};
  const SampledToken alone = Sampler(2000).choose(logits, context, sampling, 33);
  Sampler shared(2000);
  std::set<std::uint32_t> others;
  for (std::uint64_t row = 0; row < 40; ++row) {
    Sampling other = sampling;
    other.seed = row;
    if (row % 3 == 0) other.top_p = 1;
    if (row % 5 == 0) other.top_k = 300;
    others.insert(shared.choose(random_logits(2000, row, 1), {}, other, row).id);
    const SampledToken again = shared.choose(logits, context, sampling, 33);
    EXPECT_EQ(again.id, alone.id);
    EXPECT_EQ(again.log_probability, alone.log_probability);
  }
  EXPECT_GT(others.size(), 20U);
}

TEST(Sampler, MaskedTokensAreNeverChosen) {
  std::vector<float> logits(600, -kInfinity);
  logits[555] = -1e38F;
  logits[12] = -2e38F;
  Sampler sampler(600);
  EXPECT_EQ(sampler.choose(logits, {}, {}, 0).id, 555U);
  EXPECT_EQ(sampler.choose(logits, {}, {}, 0).log_probability, 0.0F);
  for (const Sampling& sampling : {Sampling{.temperature = 1e-320}, Sampling{.temperature = 1e39},
                                   Sampling{.temperature = 1e39, .top_k = 10},
                                   Sampling{.temperature = 1e39, .top_p = 0.999}}) {
    for (std::uint64_t i = 0; i < 50; ++i) {
      const auto id =
          sampler.choose(logits, std::vector<std::uint32_t>{3, 12, 555}, sampling, i).id;
      EXPECT_TRUE(id == 555 || id == 12) << id;
    }
  }
}

TEST(Sampler, RefusesLogitsThatAreNoNumbers) {
  Sampler sampler(700);
  auto logits = random_logits(700, 1, 1);
  const auto refusal = [&] { return error_of([&] { sampler.choose(logits, {}, {}, 0); }); };
  logits[650] = std::nanf("");
  EXPECT_THAT(refusal(),
              HasSubstr("the logit of token 650 is nan; expected a finite number or -inf"));
  logits[650] = -std::nanf("");
  EXPECT_THAT(refusal(), HasSubstr("the logit of token 650 is -nan;"));
  logits[600] = kInfinity;
  EXPECT_THAT(refusal(), HasSubstr("the logit of token 600 is inf;"));
  logits.assign(700, -kInfinity);
  EXPECT_EQ(refusal(), "sampler: all 700 logits are -inf; expected one finite logit at least");
  logits.resize(699);
  EXPECT_EQ(refusal(), "sampler: 699 logits; expected one a token, 700");
  logits.assign(700, 0);
  EXPECT_EQ(error_of([&] {
              sampler.choose(logits, std::vector<std::uint32_t>{700}, {.repetition_penalty = 2}, 0);
            }),
            "sampler: the context has token 700; expected less than 700");
  EXPECT_EQ(error_of([] { Sampler(0); }),
            "sampler: the vocabulary has 0 tokens; expected one at least");
}

TEST(LogSum, IsThatOfTheDefinition) {
  for (const std::size_t vocabulary : {1U, 511U, 513U, 5000U}) {
    for (const float spread : {0.0F, 1.0F, 300.0F}) {
      std::vector<float> logits = random_logits(vocabulary, vocabulary, spread);
      if (vocabulary > 1) logits[0] = -kInfinity;
      const double expected = log_sum_exp({logits.begin(), logits.end()});
      EXPECT_NEAR(log_sum(logits), expected, 1e-12 * std::max(1.0, std::abs(expected)));
    }
  }
  for (const float bad : {std::nanf(""), -std::nanf(""), kInfinity}) {
    EXPECT_THAT(error_of([&] {
                  log_sum(std::vector{1.0F, bad});
                }),
                HasSubstr("the logit of token 1 is "));
  }
}

TEST(Sampling, RefusesSettingsThatMeanNothing) {
  const auto refusal = [](const Sampling& sampling) {
    return error_of([&] { validate(sampling, "f.jsonl:3"); });
  };
  EXPECT_EQ(refusal({}), "no error");
  EXPECT_EQ(
      refusal({.temperature = 2, .top_k = 5, .top_p = 1e-9, .min_p = 1, .repetition_penalty = 0.5}),
      "no error");
  EXPECT_EQ(refusal({.temperature = -0.5}),
            "f.jsonl:3: temperature is -0.5; expected a number from 0, which always takes the most "
            "likely token");
  EXPECT_THAT(refusal({.temperature = std::nan("")}), HasSubstr("temperature is nan"));
  EXPECT_THAT(refusal({.temperature = kInfinity}), HasSubstr("temperature is inf"));
  EXPECT_EQ(refusal({.top_k = -1}),
            "f.jsonl:3: top_k is -1; expected a whole number from 0, which keeps all tokens");
  for (const double top_p : {0.0, -0.1, 1.01}) {
    EXPECT_THAT(refusal({.top_p = top_p}),
                HasSubstr("expected a number above 0, at most 1, which keeps all tokens"));
  }
  EXPECT_THAT(refusal({.top_p = std::nan("")}), HasSubstr("top_p is nan"));
  EXPECT_EQ(refusal({.min_p = 1.5}),
            "f.jsonl:3: min_p is 1.5; expected a number from 0, which keeps all tokens, to 1");
  EXPECT_EQ(refusal({.repetition_penalty = 0}),
            "f.jsonl:3: repetition_penalty is 0; expected a number above 0; 1 changes nothing");
}

}  // namespace
}  // namespace zero
