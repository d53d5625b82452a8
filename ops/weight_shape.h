// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "base/checked_math.h"
#include "ops/op_shapes.h"

namespace zero {

/// How the elements of a matrix are stored. Products read them as they are stored; no copy of whole
/// size is ever made.
enum class WeightFormat : std::uint8_t {
  plain,  ///< in the compute dtype
  int8,   ///< codes of -127 to 127 times a scale a column: the largest magnitude / 127
  nf4,    ///< 4 bits: the 16 levels of NormalFloat times a scale for 64 elements of a column, which
          ///< has 8 bits itself (double quantization): QLoRA, Dettmers et al. 2023
  q4,     ///< 4 bits: codes of -8 to 7 times a signed fp16 scale for 128 elements of a column
  u4,  ///< 4 bits: codes of 0 to 15, less a zero point of 0 to 15, times a signed fp16 scale, both
       ///< for WeightShape::group elements of a column: as GPTQ and AWQ store them. Read from
       ///< files, never made of elements
};
constexpr bool has_four_bits(WeightFormat format) {
  return format == WeightFormat::nf4 || format == WeightFormat::q4 || format == WeightFormat::u4;
}
/// Elements of a column that share a scale, where the format alone says it; 0: all of them, or none
/// has one.
constexpr std::int64_t scale_group(WeightFormat format) {
  return format == WeightFormat::nf4 ? 64 : format == WeightFormat::q4 ? 128 : 0;
}
/// "dtype": plain; "int8", "nf4", "q4". Throws zero::Error on any other name.
WeightFormat weight_format_from_name(std::string_view name);
std::string_view name_of(WeightFormat format);
/// Throws zero::Error, with what to take, if GPUs do not multiply such weights; `device` is named.
void check_format_on_gpu(WeightFormat format, std::string_view device);

/// The weight of a linear layer, (in, out) or (out, in) in files. A column is what one output
/// reads, and what an embedding gives a token.
struct WeightShape {
  std::int64_t in = 0;
  std::int64_t out = 0;
  WeightLayout layout = WeightLayout::in_out;
  DType dtype = DType::fp32;  ///< of x, the bias and a plain weight
  WeightFormat format = WeightFormat::plain;
  std::int64_t group = 0;  ///< of u4: elements that share a scale, a multiple of 32; 0: all

  /// Of the tensor in files.
  std::int64_t file_rows() const { return layout == WeightLayout::in_out ? in : out; }
  std::int64_t file_columns() const { return layout == WeightLayout::in_out ? out : in; }
};

/// Elements of a column that share a scale; 0: all of them, or none has one.
constexpr std::int64_t scale_group(const WeightShape& shape) {
  return shape.format == WeightFormat::u4 ? shape.group : scale_group(shape.format);
}

/// Callers of pack() and quantize() hand over rows in multiples of this many, from a multiple on
/// (the last call may have fewer), so that a call has whole groups and, of nf4, whole ranges.
constexpr std::int64_t pack_rows(const WeightShape& shape) {
  if (shape.layout == WeightLayout::out_in || shape.format == WeightFormat::plain) return 32;
  return scale_group(shape) == 0 ? shape.in : 8 * scale_group(shape);
}

}  // namespace zero
