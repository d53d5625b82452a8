// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// The key/value cache as operations write and read it, beside plain loops.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "base/half.h"
#include "ops/cpu/products.h"
#include "ops/inference_ops.h"
#include "tests/only_target.h"
#include "tests/ops/cached_layer.h"
#include "tests/support/reference_sums.h"

namespace zero::testing {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// What CacheFormat::int8 makes of a key or value, written down once more and plainly.
struct Quantized {
  explicit Quantized(std::span<const float> values) {
    float most = 0;
    bool finite = true;
    for (const float value : values) {
      finite = finite && std::isfinite(value);
      most = std::max(most, std::abs(value));
    }
    scale = finite ? most / 127 : kNaN;
    for (const float value : values) {
      const float code = scale > 0 ? std::nearbyint(value / scale) : 0;
      codes.push_back(static_cast<int>(std::clamp(code, -127.0F, 127.0F)));
    }
  }
  std::vector<double> values() const {
    std::vector<double> all;
    for (const int code : codes) all.push_back(static_cast<double>(scale) * code);
    return all;
  }

  float scale;
  std::vector<int> codes;
};

/// softmax(q k^T / sqrt(width)) v in fp64 for one row and query head, and the sum of magnitudes.
struct Expected {
  std::vector<double> out;
  std::vector<double> size;
};
class Reference {
 public:
  Reference(const Heads& heads, const std::vector<float>& qkv, CacheFormat format,
            std::int64_t window = 0)
      : heads_(heads), qkv_(qkv), format_(format), window_(window) {}

  std::vector<double> vector(std::int64_t row, std::int64_t head) const {
    const auto values = std::span(qkv_).subspan(
        static_cast<std::size_t>(row * heads_.qkv_width() + head * heads_.width),
        static_cast<std::size_t>(heads_.width));
    if (format_ == CacheFormat::plain || head < heads_.heads) {
      return {values.begin(), values.end()};
    }
    return Quantized(values).values();
  }
  Expected attend(std::int64_t row, std::int64_t query) const {
    const std::int64_t key = heads_.heads + query / (heads_.heads / heads_.kv_heads);
    const std::vector<double> q = vector(row, query);
    std::vector<double> powers;
    const std::int64_t first = window_ == 0 ? 0 : std::max<std::int64_t>(row + 1 - window_, 0);
    for (std::int64_t i = first; i <= row; ++i) {
      const std::vector<double> k = vector(i, key);
      powers.push_back(std::inner_product(q.begin(), q.end(), k.begin(), 0.0) /
                       std::sqrt(static_cast<double>(heads_.width)));
    }
    const double largest = *std::max_element(powers.begin(), powers.end());
    for (double& power : powers) power = std::exp(power - largest);
    const double sum = std::accumulate(powers.begin(), powers.end(), 0.0);
    Expected expected{std::vector<double>(q.size()), std::vector<double>(q.size())};
    for (std::int64_t i = first; i <= row; ++i) {
      const std::vector<double> v = vector(i, key + heads_.kv_heads);
      for (std::size_t j = 0; j < v.size(); ++j) {
        const double term = powers[static_cast<std::size_t>(i - first)] / sum * v[j];
        expected.out[j] += term;
        expected.size[j] += std::abs(term);
      }
    }
    return expected;
  }

 private:
  const Heads heads_;
  const std::vector<float>& qkv_;
  CacheFormat format_;
  std::int64_t window_;
};

class CachedAttentions : public ::testing::TestWithParam<Heads> {
 protected:
  /// Rows of q, k and v. Magnitudes of keys and values differ by token and head up to 64 times.
  std::vector<float> random_rows(std::int64_t count) {
    std::normal_distribution<float> normal(0, 1);
    std::uniform_real_distribution<float> exponent(-4, 2);
    std::vector<float> rows;
    for (std::int64_t row = 0; row < count; ++row) {
      for (std::int64_t head = 0; head < heads_.heads + 2 * heads_.kv_heads; ++head) {
        const float scale = head < heads_.heads ? 1 : std::exp2(exponent(random_));
        for (std::int64_t i = 0; i < heads_.width; ++i) {
          rows.push_back(rounded_to(heads_.dtype, scale * normal(random_)));
        }
      }
    }
    return rows;
  }
  std::span<float> vector(std::vector<float>& rows, std::int64_t row, std::int64_t head) const {
    return std::span(rows).subspan(
        static_cast<std::size_t>(row * heads_.qkv_width() + head * heads_.width),
        static_cast<std::size_t>(heads_.width));
  }
  std::int64_t key(std::int64_t kv_head) const { return heads_.heads + kv_head; }
  std::int64_t value(std::int64_t kv_head) const { return key(kv_head) + heads_.kv_heads; }
  /// Rows [first, first + count) of a query head.
  std::vector<float> rows_of(const std::vector<float>& out, std::int64_t head, std::int64_t first,
                             std::int64_t count) const {
    std::vector<float> found;
    for (std::int64_t row = first; row < first + count; ++row) {
      const auto begin = out.begin() + row * heads_.out_width() + head * heads_.width;
      found.insert(found.end(), begin, begin + heads_.width);
    }
    return found;
  }
  void expect_near(const std::vector<float>& rows, CacheFormat format, std::int64_t length,
                   std::int64_t window = 0) {
    const std::int64_t count = std::ssize(rows) / heads_.qkv_width();
    CachedLayer layer(heads_, format, count, kCacheChunk, 2, window);
    const std::vector<float> found = layer.attend(rows, length);
    const Reference reference(heads_, rows, format, window);
    const double last_bit = heads_.dtype == DType::fp32   ? 0
                            : heads_.dtype == DType::bf16 ? 0x1p-8
                                                          : 0x1p-11;
    // Pairs of bf16 multiply rounded probabilities.
    const bool pairs = format == CacheFormat::plain && heads_.dtype == DType::bf16 &&
                       cpu::kernels_of(DType::bf16) == cpu::KernelKind::pairs;
    const double last_power = pairs ? 0x1p-8 : 0;
    for (std::int64_t row = 0; row < count; ++row) {
      for (std::int64_t head = 0; head < heads_.heads; ++head) {
        const Expected expected = reference.attend(row, head);
        for (std::int64_t i = 0; i < heads_.width; ++i) {
          const auto at = static_cast<std::size_t>(i);
          ASSERT_NEAR(
              found[static_cast<std::size_t>(row * heads_.out_width() + head * heads_.width + i)],
              expected.out[at],
              (1e-5 + last_power) * expected.size[at] + last_bit * std::abs(expected.out[at]) +
                  1e-7)
              << "row " << row << ", head " << head << ", element " << i;
        }
      }
    }
  }

  const Heads heads_ = GetParam();
  std::mt19937 random_{3};
};

TEST_P(CachedAttentions, IsThatOfWhatTheCacheHolds) {
  const std::vector<float> rows = random_rows(150);
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const OnlyTarget only(target);
    for (const CacheFormat format : {CacheFormat::plain, CacheFormat::int8}) {
      expect_near(rows, format, 150);
      expect_near(rows, format, 1);
    }
  }
}

TEST_P(CachedAttentions, TakesVectorsOfZerosAndOfHugeAndTinyNumbers) {
  std::vector<float> rows = random_rows(40);
  const float huge = heads_.dtype == DType::fp16 ? 65504 : rounded_to(DType::bf16, 1e37F);
  for (const std::int64_t row : {0, 7, 15, 16, 33}) {
    std::ranges::fill(vector(rows, row, key(0)), 0.0F);
    std::ranges::fill(vector(rows, row + 1, value(0)), 0.0F);
    std::ranges::fill(vector(rows, row + 2, value(0)), huge);
    std::ranges::fill(vector(rows, row + 3, key(0)), rounded_to(heads_.dtype, 1e-7F));
    std::ranges::fill(vector(rows, row + 3, value(0)), std::numeric_limits<float>::denorm_min());
  }
  expect_near(rows, CacheFormat::int8, 40);
  // A key of huge numbers has all of the probability.
  rows = random_rows(40);
  std::ranges::fill(vector(rows, 20, key(0)), huge / 1024);
  for (std::int64_t row = 0; row < 40; ++row) std::ranges::fill(vector(rows, row, 0), 1.0F);
  expect_near(rows, CacheFormat::int8, 40);
}

TEST_P(CachedAttentions, HasTheSameBitsInAnyPassesAndBlocks) {
  const std::vector<float> rows = random_rows(150);
  for (const CacheFormat format : {CacheFormat::plain, CacheFormat::int8}) {
    const std::vector<float> expected = CachedLayer(heads_, format, 150, 16, 1).attend(rows, 150);
    for (const std::int64_t block : {16, 32, 64, 160}) {
      for (const std::int64_t length : {1, 7, 33, 150}) {
        ASSERT_EQ(CachedLayer(heads_, format, 150, block).attend(rows, length), expected)
            << "blocks of " << block << ", passes of " << length;
      }
    }
  }
}

// Windows around a vector's, a group's and a key block's positions.
TEST_P(CachedAttentions, OfAWindowIsThatOfThePositionsInIt) {
  const std::vector<float> rows = random_rows(150);
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const OnlyTarget only(target);
    for (const std::int64_t window : {1, 2, 16, 63, 64, 65, 149}) {
      for (const CacheFormat format : {CacheFormat::plain, CacheFormat::int8}) {
        expect_near(rows, format, 150, window);
        expect_near(rows, format, 1, window);
      }
    }
  }
}

TEST_P(CachedAttentions, OfAWindowHasTheSameBitsInAnyPassesAndBlocks) {
  const std::vector<float> rows = random_rows(150);
  for (const CacheFormat format : {CacheFormat::plain, CacheFormat::int8}) {
    const auto attend = [&](std::int64_t block, std::int64_t length, int threads,
                            std::int64_t window) {
      return CachedLayer(heads_, format, 150, block, threads, window).attend(rows, length);
    };
    for (const std::int64_t window : {1, 33, 70}) {
      const std::vector<float> expected = attend(16, 150, 1, window);
      for (const std::int64_t block : {16, 64, 160}) {
        for (const std::int64_t length : {1, 7, 150}) {
          ASSERT_EQ(attend(block, length, 2, window), expected)
              << "window of " << window << ", blocks of " << block << ", passes of " << length;
        }
      }
    }
    EXPECT_EQ(attend(16, 33, 2, 150), attend(16, 33, 2, 0)) << "a window of all positions";
  }
}

TEST_P(CachedAttentions, WhatIsNoNumberReachesNoRowWhoseWindowIsBehindIt) {
  const std::vector<float> rows = random_rows(140);
  for (const CacheFormat format : {CacheFormat::plain, CacheFormat::int8}) {
    for (const std::int64_t window : {1, 2, 21, 67}) {
      for (const std::int64_t length : {1, 140}) {
        const auto attend = [&](const std::vector<float>& from) {
          return CachedLayer(heads_, format, 140, kCacheChunk, 2, window).attend(from, length);
        };
        const std::vector<float> sound = attend(rows);
        for (const std::int64_t row : {18, 31, 63, 64}) {
          for (const std::int64_t head : {key(0), value(0)}) {
            std::vector<float> changed = rows;
            vector(changed, row, head).back() = kNaN;
            const std::vector<float> found = attend(changed);
            EXPECT_EQ(rows_of(found, 0, 0, row), rows_of(sound, 0, 0, row));
            const std::vector<float> reached = rows_of(found, 0, row, window);
            EXPECT_TRUE(std::ranges::any_of(reached, [](float x) { return std::isnan(x); }));
            const std::int64_t behind = row + window;
            EXPECT_EQ(rows_of(found, 0, behind, 140 - behind),
                      rows_of(sound, 0, behind, 140 - behind))
                << "window of " << window << ", passes of " << length << ", row " << row;
          }
        }
      }
    }
  }
}

// Infinities too: their codes would have no scale.
TEST_P(CachedAttentions, WhatIsNoNumberReachesTheRowsAndHeadsThatReadItAlone) {
  const std::vector<float> rows = random_rows(70);
  const std::int64_t of_one = heads_.heads / heads_.kv_heads;
  for (const std::int64_t length : {1, 70}) {
    const std::vector<float> sound =
        CachedLayer(heads_, CacheFormat::int8, 70, kCacheChunk).attend(rows, length);
    for (const std::int64_t head : {key(0), value(0)}) {
      for (const float broken : {kNaN, -kNaN, kInfinity, -kInfinity}) {
        std::vector<float> changed = rows;
        vector(changed, 18, head).back() = broken;
        const std::vector<float> found =
            CachedLayer(heads_, CacheFormat::int8, 70, kCacheChunk).attend(changed, length);
        for (std::int64_t query = 0; query < heads_.heads; ++query) {
          const std::int64_t same = query < of_one ? 18 : 70;
          EXPECT_EQ(rows_of(found, query, 0, same), rows_of(sound, query, 0, same));
          const std::vector<float> reached = rows_of(found, query, same, 70 - same);
          EXPECT_TRUE(std::ranges::all_of(reached, [](float each) { return std::isnan(each); }));
        }
      }
    }
  }
}

TEST_P(CachedAttentions, WhatIsNoNumberReachesNoEarlierRowAndNoOtherHead) {
  const std::vector<float> rows = random_rows(70);
  const std::int64_t of_one = heads_.heads / heads_.kv_heads;
  for (const std::int64_t length : {1, 70}) {
    const auto attend = [&](const std::vector<float>& from) {
      return CachedLayer(heads_, CacheFormat::plain, 70, kCacheChunk).attend(from, length);
    };
    const std::vector<float> sound = attend(rows);
    for (const std::int64_t row : {18, 31, 63, 64}) {
      for (const std::int64_t head : {key(0), value(0)}) {
        std::vector<float> changed = rows;
        vector(changed, row, head).back() = kNaN;
        const std::vector<float> found = attend(changed);
        for (std::int64_t query = 0; query < heads_.heads; ++query) {
          const std::int64_t same = query < of_one ? row : 70;
          EXPECT_EQ(rows_of(found, query, 0, same), rows_of(sound, query, 0, same));
          const bool reached = std::ranges::any_of(rows_of(found, query, same, 70 - same),
                                                   [](float x) { return std::isnan(x); });
          EXPECT_EQ(reached, same < 70);
        }
      }
    }
  }
}

TEST(LongSequence, IsReadFromItsFirstBlockToItsLast) {
  const Heads heads{1, 1, 4};
  constexpr std::int64_t kTokens = 4200;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> rows(static_cast<std::size_t>(kTokens * heads.qkv_width()));
  for (float& value : rows) value = normal(random);
  const Expected expected = Reference(heads, rows, CacheFormat::plain).attend(kTokens - 1, 0);
  for (const std::int64_t block : {kCacheChunk, 48 * kCacheChunk, 263 * kCacheChunk}) {
    const std::vector<float> found =
        CachedLayer(heads, CacheFormat::plain, kTokens, block).attend(rows, 600);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(found[found.size() - 4 + i], expected.out[i], 1e-5 * expected.size[i])
          << "blocks of " << block << " tokens, element " << i;
    }
  }
}

// Ties, the ends of the range, and scales so subnormal that quotients exceed 127.
TEST_P(CachedAttentions, CodesAndScalesAreTheSameOnAllInstructionSets) {
  std::vector<float> rows = random_rows(21);
  const float steps[] = {127, 0.5F, 1.5F, -2.5F, 3.5F, -0.5F, 126.5F, -125.5F, -127, 0.25F, 2.75F};
  for (const std::int64_t head : {key(0), value(0)}) {
    for (std::int64_t row = 0; row < 8; ++row) {
      const auto made = vector(rows, row, head);
      for (std::size_t i = 0; i < made.size(); ++i) {
        const float step = steps[(i + static_cast<std::size_t>(row)) % std::size(steps)];
        made[i] = rounded_to(heads_.dtype, row < 4 ? step : 1.5F * step * 0x1p-149F);
      }
      if (row == 2) made.back() = kNaN;
      if (row == 3) std::ranges::fill(made, -0.0F);
    }
  }
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnlyTarget only(target);
    CachedLayer layer(heads_, CacheFormat::int8, 21, 32);
    layer.attend(rows, 5);
    for (std::int64_t position = 0; position < 21; ++position) {
      for (std::int64_t head = 0; head < heads_.kv_heads; ++head) {
        const std::int64_t at = position % kCacheChunk;
        const std::byte* const scales = layer.head(position, head);
        const auto* const codes = reinterpret_cast<const std::int8_t*>(scales + 2 * 16 * 4);
        const auto expect = [&](std::int64_t of, const std::byte* scale, const auto& code) {
          const Quantized expected(vector(rows, position, of));
          float found = 0;
          std::memcpy(&found, scale, sizeof(found));
          EXPECT_TRUE(found == expected.scale || (std::isnan(found) && std::isnan(expected.scale)))
              << found << ", expected " << expected.scale;
          for (std::int64_t i = 0; i < heads_.width; ++i) {
            ASSERT_EQ(code(i), expected.codes[static_cast<std::size_t>(i)])
                << hwy::TargetName(target) << ", position " << position << ", head " << of;
          }
        };
        expect(key(head), scales + 4 * at, [&](std::int64_t i) { return codes[i * 16 + at]; });
        expect(value(head), scales + 4 * (16 + at),
               [&](std::int64_t i) { return codes[16 * heads_.width + at * heads_.width + i]; });
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CachedAttentions,
    ::testing::Values(Heads{3, 3, 20}, Heads{6, 2, 14, DType::bf16}, Heads{2, 1, 64},
                      Heads{1, 1, 7}, Heads{4, 4, 33}, Heads{5, 1, 16, DType::fp16},
                      Heads{2, 2, 32, DType::bf16}, Heads{2, 1, 48, DType::bf16},
                      Heads{4, 2, 64, DType::bf16}, Heads{8, 1, 96, DType::bf16}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace zero::testing
