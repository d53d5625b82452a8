// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <span>

#include "base/dtype.h"
#include "base/half.h"

// What results are compared with, one value at a time.
namespace zero::testing {

/// `value` rounded to bf16 or fp16, or as it is.
inline float rounded_to(DType dtype, float value) {
  if (dtype == DType::bf16) return to_float(to_bfloat16(value));
  return dtype == DType::fp16 ? to_float(to_float16(value)) : value;
}

/// The sum in the order of every reduction over ranks: of the values before the largest power of
/// two below their number, and of those behind. There is at least one value.
inline float tree_sum(std::span<const float> values) {
  if (values.size() == 1) return values.front();
  const std::size_t half = std::bit_floor(values.size() - 1);
  return tree_sum(values.first(half)) + tree_sum(values.subspan(half));
}

}  // namespace zero::testing
