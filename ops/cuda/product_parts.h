// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "ops/op_shapes.h"

namespace zero::cuda {

/// Columns of a linear layer's y: [begin, begin + shape.out) of a wider layer's.
struct LinearPart {
  std::int64_t begin = 0;
  LinearShape shape{};
};

inline constexpr std::int64_t kPartColumns = 64;

/// Whether a layer is computed in two parts: GPUs multiply at their full rate only where every
/// dimension, not only the rows' stride, is a multiple of 16 bytes. A vocabulary's is none (50257),
/// so its products are of the columns up to a multiple of kPartColumns, and of the few behind. Only
/// rows with a padded stride are cut: in others most addresses are unaligned anyway.
inline bool has_parts(const LinearShape& s) {
  return s.layout == WeightLayout::out_in && s.row_stride() % kPartColumns == 0 &&
         s.out % kPartColumns != 0 && s.out > kPartColumns;
}

/// The two parts of a layer that has_parts(): the wide one first.
inline std::array<LinearPart, 2> parts_of(const LinearShape& s) {
  const std::int64_t wide = s.out / kPartColumns * kPartColumns;
  std::array<LinearPart, 2> parts{LinearPart{0, s}, LinearPart{wide, s}};
  parts[0].shape.out = wide;
  parts[1].shape.out = s.out - wide;
  for (LinearPart& part : parts) part.shape.out_stride = s.row_stride();
  return parts;
}

}  // namespace zero::cuda
