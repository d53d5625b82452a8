// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/quantized_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "device/cpu/parallel.h"

namespace zero {
namespace {

// QLoRA (Dettmers et al. 2023), appendix E: quantiles of a normal distribution, with a zero.
constexpr std::array<float, 16> kNormalFloat{-1.0F,        -0.69619280F, -0.52507305F, -0.39491749F,
                                             -0.28444138F, -0.18477343F, -0.09105004F, 0.0F,
                                             0.07958030F,  0.16093020F,  0.24611230F,  0.33791524F,
                                             0.44070983F,  0.56261700F,  0.72295684F,  1.0F};

constexpr float kMostInt8 = 127;
constexpr float kMostScaleCode = 255;

/// Rounds half to even, for magnitudes below 2^22, in loops of any processor's vectors.
float nearest(float value) {
  constexpr float kWhole = 12582912;  // 1.5 * 2^23: its neighbours are whole numbers
  return (value + kWhole) - kWhole;
}

/// Codes of 8 bits, or of 4 bits with equal steps: `lowest` becomes code 0 of them.
struct Steps {
  float lowest, highest;
  int first;  ///< the code of `lowest`

  std::uint8_t operator()(float value, float scale) const {
    const float level = scale != 0 ? nearest(value / scale) : 0;
    const float held = std::min(highest, std::max(lowest, level));
    return static_cast<std::uint8_t>(static_cast<int>(held) - first);
  }
};

/// Of equally near levels zero's is taken, and else the lower one.
struct NormalFloat {
  std::array<float, 16> levels{};

  std::uint8_t operator()(float value, float scale) const {
    int code = zero_code(WeightFormat::nf4);
    float best = std::abs(value);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const float distance = std::abs(value - levels[static_cast<std::size_t>(i)] * scale);
      code = distance < best ? i : code;
      best = distance < best ? distance : best;
    }
    return static_cast<std::uint8_t>(code);
  }
};

template <typename Body>
void with_rounding(WeightFormat format, const Body& body) {
  if (format == WeightFormat::int8) return body(Steps{-kMostInt8, kMostInt8, 0});
  if (format == WeightFormat::q4) return body(Steps{-8, 7, -8});
  NormalFloat nearest_level;
  std::ranges::transform(code_levels(format), nearest_level.levels.begin(),
                         [](bfloat16 level) { return to_float(level); });
  body(nearest_level);
}

/// The magnitude's bits, which are ordered as magnitudes are, NaN behind infinity.
std::uint32_t magnitude(float value) { return std::bit_cast<std::uint32_t>(value) & 0x7fffffffU; }

/// Quantizes up to 32 columns at a time, those of a range.
class Columns {
 public:
  Columns(std::span<const float> values, QuantizedRows& to, std::int64_t column)
      : values_(values.data()),
        to_(to),
        column_(column),
        count_(std::min(kTile, to.column_end() - column)) {}

  void quantize() {
    for (std::int64_t scale_block = to_.scale_block_begin(); scale_block < to_.scale_block_end();
         ++scale_block) {
      const std::int64_t begin = std::max(to_.group_begin(), scale_block * kGroupsOfRange);
      const std::int64_t end = std::min(to_.group_end(), (scale_block + 1) * kGroupsOfRange);
      most_.assign(static_cast<std::size_t>((end - begin) * kTile), 0);
      for (std::int64_t group = begin; group < end; ++group) find_largest(group, most(group));
      if (to_.shape.format == WeightFormat::nf4) set_range(scale_block);
      for (std::int64_t group = begin; group < end; ++group) {
        for (std::int64_t i = 0; i < count_; ++i) set_scale(group, i, most(group)[i]);
        set_codes(group);
      }
    }
  }

 private:
  std::int64_t depth_begin(std::int64_t group) const {
    return std::max(to_.depth_begin(), group * scale_group(to_.shape.format));
  }
  std::int64_t depth_end(std::int64_t group) const {
    const std::int64_t length = scale_group(to_.shape.format);
    return length == 0 ? to_.depth_end() : std::min(to_.depth_end(), (group + 1) * length);
  }
  const float* at(std::int64_t depth, std::int64_t i) const {
    return values_ + to_.element_at(depth, column_ + i);
  }
  /// Of a group of the scale block under way: the elements of the largest magnitude, with their
  /// signs.
  float* most(std::int64_t group) { return most_.data() + group % kGroupsOfRange * kTile; }

  void find_largest(std::int64_t group, float* found) {
    const std::int64_t begin = depth_begin(group);
    const std::int64_t end = depth_end(group);
    if (to_.by_depth()) {
      for (std::int64_t depth = begin; depth < end; ++depth) {
        const float* const row = at(depth, 0);
        for (std::int64_t i = 0; i < count_; ++i) {
          found[i] = magnitude(row[i]) > magnitude(found[i]) ? row[i] : found[i];
        }
      }
    } else {
      for (std::int64_t i = 0; i < count_; ++i) {
        const float* const row = at(begin, i);
        std::uint32_t largest = 0;
        for (std::int64_t j = 0; j < end - begin; ++j) {
          largest = std::max(largest, magnitude(row[j]));
        }
        if (largest == 0) continue;
        found[i] = *std::find_if(row, row + (end - begin),
                                 [&](float value) { return magnitude(value) == largest; });
      }
    }
    for (std::int64_t i = 0; i < count_; ++i) {
      if (!std::isfinite(found[i])) refuse(group, i);
    }
  }

  [[noreturn]] void refuse(std::int64_t group, std::int64_t i) const {
    std::int64_t depth = depth_begin(group);
    while (std::isfinite(*at(depth, i))) ++depth;
    fail("input {} of output {} has weight {}; expected a finite number, which codes take", depth,
         column_ + i, *at(depth, i));
  }

  // Columns behind the last count as zeros.
  void set_range(std::int64_t scale_block) {
    for (float& value : most_) value = std::abs(value);
    const auto [least, largest] = std::minmax_element(most_.begin(), most_.end());
    to_.ranges[to_.range_at(scale_block, column_)] = {*least, (*largest - *least) / kMostScaleCode};
  }

  void set_scale(std::int64_t group, std::int64_t i, float most) {
    std::byte* const place = to_.scales.data() + to_.scale_at(group, column_ + i);
    const auto store = [&](auto scale) { std::memcpy(place, &scale, sizeof scale); };
    if (to_.shape.format == WeightFormat::int8) {
      store(std::abs(most) / kMostInt8);
    } else if (to_.shape.format == WeightFormat::q4) {
      const float16 scale = to_float16(most / -8);
      ZERO_CHECK(std::isfinite(to_float(scale)),
                 "an element is {}; expected at most 524032, 8 times what fp16 holds, for q4",
                 most);
      store(scale);
    } else {
      const auto [least, step] = to_.ranges[to_.range_at(group / kGroupsOfRange, column_)];
      const float code = step > 0 ? std::nearbyint((most - least) / step) : 0;
      store(static_cast<std::uint8_t>(std::clamp(code, 0.0F, kMostScaleCode)));
    }
  }

  void set_codes(std::int64_t group) {
    std::array<float, kTile> scales{};
    for (std::int64_t i = 0; i < count_; ++i) {
      scales[static_cast<std::size_t>(i)] = to_.scale(group, column_ + i);
    }
    const std::int64_t begin = depth_begin(group);
    const std::int64_t end = depth_end(group);
    with_rounding(to_.shape.format, [&](const auto& code) {
      if (to_.by_depth()) {
        for (std::int64_t depth = begin; depth < end; ++depth) {
          const float* const row = at(depth, 0);
          std::uint8_t* const codes = to_.codes.data() + to_.element_at(depth, column_);
          for (std::int64_t i = 0; i < count_; ++i) {
            codes[i] = code(row[i], scales[static_cast<std::size_t>(i)]);
          }
        }
        return;
      }
      for (std::int64_t i = 0; i < count_; ++i) {
        const float* const row = at(begin, i);
        std::uint8_t* const codes = to_.codes.data() + to_.element_at(begin, column_ + i);
        const float scale = scales[static_cast<std::size_t>(i)];
        for (std::int64_t j = 0; j < end - begin; ++j) codes[j] = code(row[j], scale);
      }
    });
  }

  const float* values_;
  QuantizedRows& to_;
  std::int64_t column_;
  std::int64_t count_;
  std::vector<float> most_;  // (groups of a scale block, 32)
};

}  // namespace

const std::array<bfloat16, 16>& code_levels(WeightFormat format) {
  static const std::array<std::array<bfloat16, 16>, 3> levels = [] {
    std::array<std::array<bfloat16, 16>, 3> made{};
    for (std::size_t i = 0; i < 16; ++i) {
      made[0][i] = to_bfloat16(kNormalFloat[i]);
      made[1][i] = to_bfloat16(static_cast<float>(i) - 8);
      made[2][i] = to_bfloat16(static_cast<float>(i));
    }
    return made;
  }();
  return levels[format == WeightFormat::nf4 ? 0 : format == WeightFormat::u4 ? 2 : 1];
}

QuantizedRows::QuantizedRows(const WeightShape& of, std::int64_t begin, std::int64_t rows)
    : WeightRows{of, begin, rows} {
  const std::int64_t groups = group_end() - group_begin();
  codes.resize(static_cast<std::size_t>(count * shape.file_columns()));
  scales.resize(static_cast<std::size_t>(groups * columns() * scale_bytes(shape.format)));
  if (shape.format == WeightFormat::u4) {
    zeros.resize(static_cast<std::size_t>(groups * columns()));
  } else if (shape.format == WeightFormat::nf4) {
    ranges.resize(static_cast<std::size_t>((scale_block_end() - scale_block_begin()) *
                                           div_ceil(columns(), kTile)));
  }
}

float QuantizedRows::scale(std::int64_t group, std::int64_t column) const {
  const std::byte* const place = scales.data() + scale_at(group, column);
  const auto load = [&](auto scale) {
    std::memcpy(&scale, place, sizeof scale);
    return scale;
  };
  if (shape.format == WeightFormat::int8) return load(0.0F);
  if (scale_bytes(shape.format) == 2) return to_float(load(float16{}));
  const auto [least, step] = ranges[range_at(group / kGroupsOfRange, column)];
  return static_cast<float>(load(std::uint8_t{})) * step + least;
}

QuantizedRows quantize(const WeightShape& shape, std::int64_t first, std::span<const float> rows,
                       int threads) {
  ZERO_CHECK(shape.format != WeightFormat::u4,
             "weights are u4, which are read of GPTQ's and AWQ's folders; expected int8, nf4 or "
             "q4 of elements");
  QuantizedRows quantized(shape, first, std::ssize(rows) / shape.file_columns());
  const std::int64_t blocks = div_ceil(quantized.columns(), kTile);
  cpu::parallel_for(threads, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      Columns(rows, quantized, quantized.column_begin() + block * kTile).quantize();
    }
  });
  return quantized;
}

}  // namespace zero
