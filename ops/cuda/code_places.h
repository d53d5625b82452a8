// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/inference_ops.h"

namespace zero::cuda {

/// Bytes of codes that a thread loads at once.
inline constexpr int kCodeBytes = 16;
/// Groups, with a scale each, of a scale block of 4-bit codes: those that share nf4's range.
inline constexpr int kScaleBlockGroups = 8;
/// Columns that share nf4's range.
inline constexpr int kRangeColumns = 32;

constexpr int code_bits(WeightFormat format) { return format == WeightFormat::int8 ? 8 : 4; }
/// Codes in kCodeBytes: all of one scale.
constexpr int codes_at_once(WeightFormat format) { return kCodeBytes * 8 / code_bits(format); }

/// Where codes and scales of a weight lie. Codes: scale blocks of `scale_block_depth()` inputs one
/// after another, in each (out, inputs of the scale block), so that a warp reads inputs side by
/// side and pack() writes whole ranges; the low half of a byte is the first of two codes. Then
/// scales: int8: fp32 (out); q4: fp16 (scale blocks, out, kScaleBlockGroups); nf4: codes of 8 bits,
/// likewise, and then ranges (scale blocks, out / kRangeColumns) of two floats. For host and
/// device.
class CodePlaces {
 public:
  constexpr CodePlaces(WeightFormat format, std::int64_t in, std::int64_t out)
      : format_(format), in_(in), out_(out) {}

  constexpr std::int64_t padded_in() const {
    const std::int64_t codes = codes_at_once(format_);
    return (in_ + codes - 1) / codes * codes;
  }
  constexpr std::int64_t scale_block_depth() const {
    return format_ == WeightFormat::int8 ? padded_in() : kScaleBlockGroups * scale_group(format_);
  }
  constexpr std::int64_t scale_blocks() const {
    return (in_ + scale_block_depth() - 1) / scale_block_depth();
  }
  /// Inputs of a scale block, padding too.
  constexpr std::int64_t depth_of(std::int64_t scale_block) const {
    const std::int64_t left = padded_in() - scale_block * scale_block_depth();
    return left < scale_block_depth() ? left : scale_block_depth();
  }
  /// Bytes of a column in a scale block.
  constexpr std::int64_t column_bytes(std::int64_t scale_block) const {
    return depth_of(scale_block) * code_bits(format_) / 8;
  }
  /// The byte that holds the code of an element.
  constexpr std::int64_t code(std::int64_t column, std::int64_t depth) const {
    const std::int64_t scale_block = depth / scale_block_depth();
    const std::int64_t begin = scale_block * scale_block_depth();
    return (begin * out_ + column * depth_of(scale_block) + depth - begin) * code_bits(format_) / 8;
  }

  constexpr int scale_bytes() const {
    return format_ == WeightFormat::int8 ? 4 : format_ == WeightFormat::q4 ? 2 : 1;
  }
  constexpr int groups_of_scale_block() const {
    return format_ == WeightFormat::int8 ? 1 : kScaleBlockGroups;
  }
  /// The byte where the scale of a column in a group begins.
  constexpr std::int64_t scale(std::int64_t column, std::int64_t group) const {
    const std::int64_t groups = groups_of_scale_block();
    return code_end() +
           ((group / groups * out_ + column) * groups + group % groups) * scale_bytes();
  }
  constexpr std::int64_t range(std::int64_t column, std::int64_t scale_block) const {
    return range_begin() + (scale_block * range_columns() + column / kRangeColumns) * kRangeBytes;
  }
  constexpr std::int64_t bytes() const {
    return range_begin() +
           (format_ == WeightFormat::nf4 ? scale_blocks() * range_columns() * kRangeBytes : 0);
  }

 private:
  static constexpr std::int64_t kRangeBytes = 8;

  constexpr std::int64_t range_columns() const {
    return (out_ + kRangeColumns - 1) / kRangeColumns;
  }
  constexpr std::int64_t code_end() const { return padded_in() * out_ * code_bits(format_) / 8; }
  constexpr std::int64_t range_begin() const {
    return code_end() +
           (scale_blocks() * out_ * groups_of_scale_block() * scale_bytes() + 7) / 8 * 8;
  }

  WeightFormat format_;
  std::int64_t in_;
  std::int64_t out_;
};

}  // namespace zero::cuda
