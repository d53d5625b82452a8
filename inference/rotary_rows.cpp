// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/rotary_rows.h"

namespace zero {

RotaryRows::RotaryRows(Device& device, Ops& ops, const RotaryAngles& angles, const Size& size)
    : pairs_(size.head_width / 2) {
  const auto take = [&](std::int64_t rows) {
    return device.allocate(rows * pairs_, DType::fp32, MemoryClass::activations, "activations");
  };
  cosines_ = take(size.positions);
  sines_ = take(size.positions);
  row_cosines_ = take(size.rows);
  row_sines_ = take(size.rows);
  ops.rotary_table({.batch = 1,
                    .sequence = size.positions,
                    .heads = 1,
                    .head_width = size.head_width,
                    .row_width = size.head_width},
                   angles, cosines_.view(), sines_.view());
}

void RotaryRows::take_rows(InferenceOps& ops, std::int64_t rows) const {
  ops.take_rows(RowList::positions, cosines_.view(), pairs_, of(row_cosines_, rows));
  ops.take_rows(RowList::positions, sines_.view(), pairs_, of(row_sines_, rows));
}

void RotaryRows::turn(Ops& ops, const RotaryShape& shape, const View& x) const {
  ops.rotary(shape, Turn::forward, x, of(row_cosines_, shape.sequence),
             of(row_sines_, shape.sequence));
}

}  // namespace zero
