// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "architecture/rotary.h"
#include "ops/inference_ops.h"
#include "ops/ops.h"

namespace zero {

/// Rotary embeddings of a pass's rows, and the tables of all positions from which they are
/// gathered, charged to activations.
class RotaryRows {
 public:
  struct Size {
    std::int64_t positions = 0;
    std::int64_t rows = 0;  ///< of a pass, at most
    std::int64_t head_width = 0;
  };
  /// Without rows.
  RotaryRows() = default;
  RotaryRows(Device& device, Ops& ops, const RotaryAngles& angles, const Size& size);

  /// Gathers those of the pass that `ops` began, of `rows` rows.
  void take_rows(InferenceOps& ops, std::int64_t rows) const;
  /// Turns the first heads of x, of the gathered rows: shape.sequence, of batch 1.
  void turn(Ops& ops, const RotaryShape& shape, const View& x) const;

 private:
  View of(const Buffer& table, std::int64_t rows) const { return table.slice(0, rows * pairs_); }

  std::int64_t pairs_ = 0;  // of a head
  Buffer cosines_, sines_;  // (positions, pairs)
  Buffer row_cosines_, row_sines_;
};

}  // namespace zero
