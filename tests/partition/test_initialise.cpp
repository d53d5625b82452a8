// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <xxhash.h>

#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/sign_of_life.h"
#include "partition/flat_layout.h"
#include "partition/parameter_spec.h"
#include "tests/partition/units.h"

namespace zero::testing {
namespace {

std::vector<float> values_of(const Init& init, std::uint64_t seed, std::string_view name,
                             std::int64_t begin, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count), -123.0F);
  initialise(init, seed, name, begin, values);
  return values;
}

// Philox4x32-10 from its definition, one output word of block `counter`.
std::uint32_t philox_word(std::uint64_t counter, std::uint64_t key, int word) {
  std::array<std::uint32_t, 4> c = {static_cast<std::uint32_t>(counter),
                                    static_cast<std::uint32_t>(counter >> 32), 0, 0};
  for (std::uint32_t round = 0; round < 10; ++round) {
    const auto k0 = static_cast<std::uint32_t>(key) + round * 0x9E3779B9U;
    const auto k1 = static_cast<std::uint32_t>(key >> 32) + round * 0xBB67AE85U;
    const std::uint64_t a = 0xD2511F53ULL * c[0];
    const std::uint64_t b = 0xCD9E8D57ULL * c[2];
    const std::uint32_t c1 = c[1];
    const std::uint32_t c3 = c[3];
    c[0] = static_cast<std::uint32_t>(b >> 32) ^ c1 ^ k0;
    c[1] = static_cast<std::uint32_t>(b);
    c[2] = static_cast<std::uint32_t>(a >> 32) ^ c3 ^ k1;
    c[3] = static_cast<std::uint32_t>(a);
  }
  return c.at(static_cast<std::size_t>(word));
}

TEST(Initialise, ThisFileKnowsPhilox) {  // known answers of the Random123 library
  EXPECT_EQ(philox_word(0, 0, 0), 0x6627e8d5U);
  EXPECT_EQ(philox_word(0, 0, 1), 0xe169c58dU);
  EXPECT_EQ(philox_word(0, 0, 2), 0xbc57ac4cU);
  EXPECT_EQ(philox_word(0, 0, 3), 0x9b00dbd8U);
}

TEST(Initialise, UniformValuesArePhiloxWordsOfTheLogicalIndex) {
  const std::uint64_t key = XXH3_64bits_withSeed("h.0.weight", 10, 42);
  const auto values = values_of(init::uniform(-1, 3), 42, "h.0.weight", 0, 1000);
  for (int i = 0; i < 1000; ++i) {
    const double word = philox_word(static_cast<std::uint64_t>(i / 4), key, i % 4);
    ASSERT_EQ(values[static_cast<std::size_t>(i)], static_cast<float>(-1 + 4 * (word / 0x1p32)));
  }
}

TEST(Initialise, NormalValuesAreBoxMullerPairsOfPhiloxWords) {
  const std::uint64_t key = XXH3_64bits_withSeed("w", 1, 7);
  const auto values = values_of(init::normal(1), 7, "w", 0, 100'000);
  for (int i = 0; i < 100'000; i += 2) {
    const auto block = static_cast<std::uint64_t>(i / 4);
    const double u = (philox_word(block, key, i % 4) + 0.5) / 0x1p32;
    const double angle = 2 * std::numbers::pi * philox_word(block, key, i % 4 + 1) / 0x1p32;
    const double radius = std::sqrt(-2 * std::log(u));
    const auto at = static_cast<std::size_t>(i);
    // Half a unit in the last place of fp32 for the final rounding, and the library's own error.
    ASSERT_NEAR(values[at], radius * std::cos(angle), 4e-7);
    ASSERT_NEAR(values[at + 1], radius * std::sin(angle), 4e-7);
  }
}

TEST(Initialise, ValuesNeverChange) {  // recorded: saved seeds must give the same start for ever
  const auto values = values_of(init::normal(0.02F), 1, "wte.weight", 0, 4);
  const std::vector<float> recorded = {0x1.793974p-5F, -0x1.e3c272p-6F, -0x1.7dc19cp-6F,
                                       -0x1.918a82p-9F};
  EXPECT_EQ(values, recorded);
}

TEST(Initialise, AnyCutGivesTheSameValues) {
  for (const Init& init : {init::normal(0.5F, 0.1F), init::uniform(-2, 5)}) {
    const auto whole = values_of(init, 3, "name", 0, 3000);
    EXPECT_TRUE(rc::check([&] {
      const auto begin = *rc::gen::inRange<std::int64_t>(0, 3000);
      const auto count = *rc::gen::inRange<std::int64_t>(0, 3000 - begin + 1);
      const auto part = values_of(init, 3, "name", begin, count);
      RC_ASSERT(std::equal(part.begin(), part.end(), whole.begin() + begin));
    }));
  }
}

TEST(Initialise, EveryWorldStartsFromTheSameValues) {
  const ParameterSpec spec{.name = "w", .shape = {37, 53}, .init = init::normal(1)};
  const auto whole = values_of(spec.init, 9, "u.w", 0, spec.count());
  for (const int world : kWorlds) {
    std::vector<float> joined;
    const FlatLayout layout({spec}, world, 0);
    for (int rank = 0; rank < world; ++rank) {
      const FlatRange own = layout.owned(rank, layout.placements()[0].range());
      const auto part = values_of(spec.init, 9, "u.w", own.begin, own.count);
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_EQ(joined, whole) << "world " << world;
  }
}

TEST(Initialise, LateElementsAreReachedDirectly) {
  const std::int64_t late = std::int64_t{1} << 45;
  const auto values = values_of(init::normal(1), 3, "name", late, 9);
  EXPECT_EQ(values[4], values_of(init::normal(1), 3, "name", late + 4, 1)[0]);
  EXPECT_NE(values, values_of(init::normal(1), 3, "name", 0, 9));  // the counter has 64 bits
}

TEST(Initialise, SeedAndNameBothMatter) {
  const auto values = values_of(init::normal(1), 1, "a", 0, 8);
  EXPECT_NE(values, values_of(init::normal(1), 2, "a", 0, 8));
  EXPECT_NE(values, values_of(init::normal(1), 1, "b", 0, 8));
}

struct Moments {
  double mean = 0;
  double deviation = 0;
  double kurtosis = 0;
  double neighbours = 0;  ///< correlation of neighbouring elements
};

Moments moments_of(const std::vector<float>& values) {
  Moments m;
  const auto n = static_cast<double>(values.size());
  for (const float v : values) m.mean += v / n;
  double second = 0;
  double fourth = 0;
  double neighbours = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double d = values[i] - m.mean;
    second += d * d / n;
    fourth += d * d * d * d / n;
    if (i > 0) neighbours += d * (values[i - 1] - m.mean) / n;
  }
  m.deviation = std::sqrt(second);
  m.kurtosis = fourth / (second * second);
  m.neighbours = neighbours / second;
  return m;
}

TEST(Initialise, NormalHasItsMeanDeviationAndKurtosis) {
  const Moments m = moments_of(values_of(init::normal(0.02F, 0.5F), 1, "w", 0, 1'000'000));
  EXPECT_NEAR(m.mean, 0.5, 0.02 * 5e-3);
  EXPECT_NEAR(m.deviation, 0.02, 0.02 * 5e-3);
  EXPECT_NEAR(m.kurtosis, 3, 0.03);
  EXPECT_NEAR(m.neighbours, 0, 5e-3);
}

TEST(Initialise, UniformStaysInItsBoundsWithItsMeanAndDeviation) {
  const auto values = values_of(init::uniform(-1, 3), 1, "w", 0, 1'000'000);
  for (const float v : values) ASSERT_TRUE(v >= -1 && v <= 3);
  const Moments m = moments_of(values);
  EXPECT_NEAR(m.mean, 1, 0.02);
  EXPECT_NEAR(m.deviation, 4 / std::sqrt(12.0), 0.01);
  EXPECT_NEAR(m.neighbours, 0, 5e-3);
}

TEST(Initialise, ZerosAndConstantsAreExact) {
  EXPECT_EQ(values_of(init::zeros(), 1, "w", 5, 3), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(values_of(init::ones(), 1, "w", 5, 3), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(values_of(init::constant(2.5F), 1, "w", 0, 1), (std::vector<float>{2.5F}));
  EXPECT_EQ(values_of(init::normal(0, 3), 1, "w", 0, 2), (std::vector<float>{3, 3}));
}

TEST(Initialise, BadArgumentsAreRefusedByName) {
  EXPECT_EQ(error_of([] { values_of(init::zeros(), 1, "h.w", -4, 1); }),
            "initialise(\"h.w\"): begins at element -4; expected 0 or more");
  EXPECT_EQ(
      error_of([] { values_of(init::normal(-1), 1, "h.w", 0, 1); }),
      "initialise(\"h.w\"): normal with mean 0 and deviation -1; expected finite values and a "
      "deviation of 0 or more");
  EXPECT_EQ(error_of([] { values_of(init::uniform(2, 1), 1, "h.w", 0, 1); }),
            "initialise(\"h.w\"): uniform over [2, 1]; expected finite bounds, the lower first");
  EXPECT_THROW(values_of(init::normal(std::numeric_limits<float>::infinity()), 1, "w", 0, 1),
               Error);
}

TEST(Initialise, ASliceHasTheValuesOfItsLogicalElements) {
  const ParameterSpec spec{.name = "w",
                           .shape = {5, 4},
                           .init = init::normal(1.0F),
                           .slice = TensorSlice{{5, 9}, 1, {{1, 3}, {8, 1}}}};
  std::vector<float> logical(45);
  initialise(spec.init, 3, "u.w", 0, logical);
  std::vector<float> local(20);
  initialise(spec, 3, "u.w", 0, local);
  const std::array<std::size_t, 4> columns{1, 2, 3, 8};
  for (std::size_t row = 0; row < 5; ++row) {
    for (std::size_t at = 0; at < 4; ++at) {
      EXPECT_EQ(local[row * 4 + at], logical[row * 9 + columns[at]]);
    }
  }
  std::vector<float> part(7);
  initialise(spec, 3, "u.w", 6, part);
  EXPECT_EQ(part, std::vector<float>(local.begin() + 6, local.begin() + 13));
}

// A watchdog would take the loop over an embedding for an endless one.
TEST(Initialise, GivesSignsOfLife) {
  const std::int64_t before = signs_of_life();
  std::vector<float> values(1 << 20);
  initialise(init::normal(1), 3, "wte", 0, values);
  EXPECT_GE(signs_of_life() - before, 8);
}

// Rows of a slice are such parts, of which there are many.
TEST(Initialise, GivesASignOfLifeForAPartOfATensor) {
  std::vector<float> values(1 << 10);
  for (const Init& init : {init::normal(1), init::zeros()}) {
    const std::int64_t before = signs_of_life();
    initialise(init, 3, "wte", 1 << 10, values);
    EXPECT_GE(signs_of_life() - before, 1);
  }
}

}  // namespace
}  // namespace zero::testing
