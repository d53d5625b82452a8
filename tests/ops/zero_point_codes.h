// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/half.h"
#include "ops/quantized_rows.h"

namespace zero::testing {

/// A matrix of codes of 4 bits less zero points, and its values as the formula has them: exact in
/// fp32 on every processor.
class ZeroPoints {
 public:
  ZeroPoints(std::int64_t in, std::int64_t out, std::int64_t group, std::mt19937& random)
      : in_(in), out_(out), group_(group == 0 ? in : group) {
    std::uniform_int_distribution<int> code(0, 15);
    std::normal_distribution<float> scale(0, 0.1F);
    const std::int64_t groups = (in + group_ - 1) / group_;
    for (std::int64_t i = 0; i < in * out; ++i) codes_.push_back(code(random));
    for (std::int64_t i = 0; i < groups * out; ++i) {
      zeros_.push_back(i % 5 == 0 ? 15 * (i % 2) : code(random));
      scales_.push_back(to_float16(scale(random)));
    }
  }

  /// (out, in)
  std::vector<float> values() const {
    std::vector<float> all;
    for (std::int64_t column = 0; column < out_; ++column) {
      for (std::int64_t i = 0; i < in_; ++i) {
        const std::size_t of = scale_at(column, i / group_);
        all.push_back(static_cast<float>(code(column, i) - zeros_[of]) * to_float(scales_[of]));
      }
    }
    return all;
  }
  QuantizedRows rows(const WeightShape& shape, std::int64_t first, std::int64_t count) const {
    QuantizedRows rows(shape, first, count);
    for (std::int64_t column = rows.column_begin(); column < rows.column_end(); ++column) {
      for (std::int64_t i = rows.depth_begin(); i < rows.depth_end(); ++i) {
        rows.codes[rows.element_at(i, column)] = static_cast<std::uint8_t>(code(column, i));
      }
      for (std::int64_t group = rows.group_begin(); group < rows.group_end(); ++group) {
        const std::size_t of = scale_at(column, group);
        rows.zeros[rows.zero_at(group, column)] = static_cast<std::uint8_t>(zeros_[of]);
        std::memcpy(rows.scales.data() + rows.scale_at(group, column), &scales_[of], 2);
      }
    }
    return rows;
  }

 private:
  int code(std::int64_t column, std::int64_t i) const {
    return codes_[static_cast<std::size_t>(column * in_ + i)];
  }
  std::size_t scale_at(std::int64_t column, std::int64_t group) const {
    return static_cast<std::size_t>(group * out_ + column);
  }

  std::int64_t in_, out_, group_;
  std::vector<int> codes_{}, zeros_{};
  std::vector<float16> scales_{};
};

}  // namespace zero::testing
