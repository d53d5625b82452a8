// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// A counter-based generator: element i of a parameter comes from block i / 4 of Philox4x32-10
// (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), keyed by the XXH3 hash of
// the full name under the seed. Normal values are Box-Muller pairs (0, 1) and (2, 3) of a block.
// The logarithm, sine and cosine are written out in +, -, *, / and sqrt, which IEEE 754 rounds
// exactly, so the bits depend on no mathematics library.
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/sign_of_life.h"
#include "partition/parameter_spec.h"

namespace zero {

namespace {

using Block = std::array<std::uint32_t, 4>;
constexpr std::int64_t kBlock = 4;  // elements of one Philox block

Block philox(std::uint64_t key, std::uint64_t counter) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  Block x = {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * x[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * x[2];
    x = {static_cast<std::uint32_t>(p1 >> 32) ^ x[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ x[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return x;
}

// Natural logarithm of a normal x > 0, within 2 units in the last place: x = m * 2^e with m in
// [sqrt(1/2), sqrt(2)), log m = 2 artanh((m - 1) / (m + 1)) by its series.
double log_of(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  auto exponent = static_cast<double>(static_cast<std::int64_t>(bits >> 52) - 1023);
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL);
  if (m > std::numbers::sqrt2) {
    m *= 0.5;
    exponent += 1;
  }
  const double t = (m - 1) / (m + 1);
  const double t2 = t * t;
  double series = 1.0 / 23;
  for (int odd = 21; odd >= 1; odd -= 2) series = series * t2 + 1.0 / odd;
  return exponent * std::numbers::ln2 + 2 * t * series;
}

struct SineCosine {
  double sine = 0;
  double cosine = 0;
};

// Cosine and sine of the angle 2 pi x / 2^32: the nearest quarter turn, exactly, then a Taylor
// series over +-pi/4.
SineCosine sine_cosine(std::uint32_t x) {
  const std::uint32_t quarter = (x + 0x20000000U) >> 30;
  const auto rest = static_cast<std::int32_t>(x - (quarter << 30));
  const double angle = rest * (2 * std::numbers::pi / 4294967296.0);
  const double a2 = angle * angle;
  double sine = 1;
  double cosine = 1;
  for (int n = 16; n >= 2; n -= 2) {
    cosine = 1 - cosine * a2 * (1.0 / (n * (n - 1)));
    sine = 1 - sine * a2 * (1.0 / (n * (n + 1)));
  }
  sine *= angle;
  switch (quarter) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

std::array<double, kBlock> standard_normal(const Block& block) {
  std::array<double, kBlock> values{};
  for (std::size_t pair = 0; pair < 4; pair += 2) {
    const double u = (block[pair] + 0.5) * (1.0 / 4294967296.0);  // in (0, 1), exact
    const double radius = std::sqrt(-2 * log_of(u));
    const SineCosine direction = sine_cosine(block[pair + 1]);
    values[pair] = radius * direction.cosine;
    values[pair + 1] = radius * direction.sine;
  }
  return values;
}

std::array<double, kBlock> standard_uniform(const Block& block) {
  std::array<double, kBlock> values{};
  for (std::size_t i = 0; i < 4; ++i) values[i] = block[i] * (1.0 / 4294967296.0);
  return values;
}

void check(const Init& init, std::string_view full_name, std::int64_t begin) {
  ZERO_CHECK(begin >= 0, "initialise(\"{}\"): begins at element {}; expected 0 or more", full_name,
             begin);
  if (init.kind == Init::Kind::normal) {
    ZERO_CHECK(
        std::isfinite(init.a) && std::isfinite(init.b) && init.b >= 0,
        "initialise(\"{}\"): normal with mean {} and deviation {}; expected finite values and "
        "a deviation of 0 or more",
        full_name, init.a, init.b);
  }
  if (init.kind == Init::Kind::uniform) {
    ZERO_CHECK(std::isfinite(init.a) && std::isfinite(init.b) && init.a <= init.b,
               "initialise(\"{}\"): uniform over [{}, {}]; expected finite bounds, the lower first",
               full_name, init.a, init.b);
  }
}

}  // namespace

void initialise(const Init& init, std::uint64_t seed, std::string_view full_name,
                std::int64_t begin, std::span<float> out) {
  check(init, full_name, begin);
  if (init.kind == Init::Kind::zeros || init.kind == Init::Kind::constant) {
    constexpr std::size_t kFilledBetweenSigns = 1 << 24;  // elements: some milliseconds
    while (!out.empty()) {
      const auto part = out.first(std::min(kFilledBetweenSigns, out.size()));
      std::ranges::fill(part, init.kind == Init::Kind::zeros ? 0.0F : init.a);
      give_sign_of_life();
      out = out.subspan(part.size());
    }
    return;
  }
  const bool normal = init.kind == Init::Kind::normal;
  const double offset = init.a;
  const double scale = normal ? double{init.b} : double{init.b} - double{init.a};
  const std::uint64_t key = XXH3_64bits_withSeed(full_name.data(), full_name.size(), seed);
  const std::int64_t end = begin + static_cast<std::int64_t>(out.size());
  constexpr std::int64_t kBetweenSigns = 1 << 14;  // blocks: some milliseconds
  const std::int64_t first_block = begin / kBlock;
  for (std::int64_t block = first_block; block * kBlock < end; ++block) {
    if ((block - first_block) % kBetweenSigns == 0) give_sign_of_life();
    const Block bits = philox(key, static_cast<std::uint64_t>(block));
    const auto values = normal ? standard_normal(bits) : standard_uniform(bits);
    const std::int64_t first = std::max(begin, block * kBlock);
    const std::int64_t last = std::min(end, (block + 1) * kBlock);
    for (std::int64_t i = first; i < last; ++i) {
      out[static_cast<std::size_t>(i - begin)] =
          static_cast<float>(offset + scale * values[static_cast<std::size_t>(i - block * kBlock)]);
    }
  }
}

void initialise(const ParameterSpec& spec, std::uint64_t seed, std::string_view full_name,
                std::int64_t begin, std::span<float> out) {
  const auto count = static_cast<std::int64_t>(out.size());
  spec.for_each_run(begin, count, [&](const TensorSlice::Run& run) {
    initialise(spec.init, seed, full_name, run.logical,
               out.subspan(static_cast<std::size_t>(run.local - begin),
                           static_cast<std::size_t>(run.count)));
  });
}

}  // namespace zero
