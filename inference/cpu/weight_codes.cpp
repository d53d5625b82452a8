// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/cpu/weight_codes.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace zero::cpu {
namespace {

constexpr float kMostInt8 = 127;
constexpr float kMostScaleCode = 255;

// QLoRA (Dettmers et al. 2023), appendix E: quantiles of a normal distribution, with a zero.
constexpr std::array<float, 16> kNormalFloat{-1.0F,        -0.69619280F, -0.52507305F, -0.39491749F,
                                             -0.28444138F, -0.18477343F, -0.09105004F, 0.0F,
                                             0.07958030F,  0.16093020F,  0.24611230F,  0.33791524F,
                                             0.44070983F,  0.56261700F,  0.72295684F,  1.0F};

/// The element of the largest magnitude in rows [begin, end) of a column, with its sign.
float largest(std::span<const float> values, std::int64_t begin, std::int64_t end,
              std::int64_t column) {
  float found = 0;
  for (std::int64_t i = begin; i < end; ++i) {
    const float value = values[static_cast<std::size_t>(i * kSquare + column)];
    if (std::abs(value) > std::abs(found)) found = value;
  }
  return found;
}

void set_nf4_range(std::span<const float> largest, std::uint8_t* codes, ScaleRange& range) {
  const auto [least, most] = std::minmax_element(largest.begin(), largest.end());
  range = {*least, (*most - *least) / kMostScaleCode};
  for (std::size_t i = 0; i < largest.size(); ++i) {
    const float code = range.step > 0 ? (largest[i] - range.least) / range.step : 0;
    codes[i] = static_cast<std::uint8_t>(std::clamp(std::nearbyint(code), 0.0F, kMostScaleCode));
  }
}

}  // namespace

const std::array<bfloat16, 16>& code_levels(WeightFormat format) {
  static const std::array<std::array<bfloat16, 16>, 2> levels = [] {
    std::array<std::array<bfloat16, 16>, 2> made{};
    for (std::size_t i = 0; i < 16; ++i) {
      made[0][i] = to_bfloat16(kNormalFloat[i]);
      made[1][i] = to_bfloat16(static_cast<float>(i) - 8);
    }
    return made;
  }();
  return levels[format == WeightFormat::nf4 ? 0 : 1];
}

std::int64_t ColumnScales::bytes(WeightFormat format, std::int64_t in) {
  const std::int64_t groups = count_groups(format, in);
  switch (format) {
    case WeightFormat::plain:
      return 0;
    case WeightFormat::int8:
      return kSquare * 4;
    case WeightFormat::q4:
      return groups * kSquare * 2;
    case WeightFormat::nf4:
      return groups * kSquare +
             div_ceil(groups, kGroupsOfRange) * static_cast<std::int64_t>(sizeof(ScaleRange));
  }
  return 0;
}

float ColumnScales::scale(std::int64_t group, std::int64_t column) const {
  if (format_ == WeightFormat::int8) return of_int8()[column];
  if (format_ == WeightFormat::q4) return to_float(of_q4(group)[column]);
  return static_cast<float>(of_nf4(group)[column]) * range(group).step + range(group).least;
}

void set_scales(WeightFormat format, std::int64_t in, std::int64_t first,
                std::span<const float> values, std::byte* to) {
  const std::int64_t depth = std::ssize(values) / kSquare;
  const std::int64_t length = scale_group(format) == 0 ? depth : scale_group(format);
  const std::int64_t groups = ColumnScales::count_groups(format, in);
  std::vector<float> of_range;
  for (std::int64_t begin = 0; begin < depth; begin += length) {
    const std::int64_t end = std::min(depth, begin + length);
    const std::int64_t group = (first + begin) / length;
    for (std::int64_t column = 0; column < kSquare; ++column) {
      const float most = largest(values, begin, end, column);
      const std::int64_t at = group * kSquare + column;
      if (format == WeightFormat::int8) {
        reinterpret_cast<float*>(to)[column] = std::abs(most) / kMostInt8;
      } else if (format == WeightFormat::q4) {
        const float16 scale = to_float16(most / -8);
        ZERO_CHECK(std::isfinite(to_float(scale)),
                   "an element is {}; expected at most 524032, 8 times what fp16 holds, for q4",
                   most);
        reinterpret_cast<float16*>(to)[at] = scale;
      } else {
        of_range.push_back(std::abs(most));
      }
    }
    const std::int64_t next = group + 1;
    if (!of_range.empty() && (next % kGroupsOfRange == 0 || next == groups)) {
      const std::int64_t range = group / kGroupsOfRange;
      auto* const ranges = reinterpret_cast<ScaleRange*>(to + groups * kSquare);
      set_nf4_range(of_range,
                    reinterpret_cast<std::uint8_t*>(to) + range * kGroupsOfRange * kSquare,
                    ranges[range]);
      of_range.clear();
    }
  }
}

int code_of(WeightFormat format, float value, float scale) {
  if (format == WeightFormat::nf4) {
    const auto& levels = code_levels(format);
    int best = 7;  // zero
    for (int i = 0; i < 16; ++i) {
      const auto distance = [&](int code) {
        return std::abs(value - to_float(levels[static_cast<std::size_t>(code)]) * scale);
      };
      if (distance(i) < distance(best)) best = i;
    }
    return best;
  }
  const float code = scale != 0 ? std::nearbyint(value / scale) : 0;
  if (format == WeightFormat::int8)
    return static_cast<int>(std::clamp(code, -kMostInt8, kMostInt8));
  return static_cast<int>(std::clamp(code, -8.0F, 7.0F)) + 8;
}

}  // namespace zero::cpu
