// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "architecture/decoder_shape.h"
#include "inference/tensor_part.h"

namespace zero {

/// What a rank of a tensor group computes of a decoder: some heads with their part of the cache,
/// and some columns of the MLP (Shoeybi et al. 2019). Shares may be uneven.
struct DecoderSplit {
  DecoderShape whole;
  DecoderShape local;  ///< the whole, with this rank's heads, kv_heads and intermediate
  // This rank's elements of a row.
  IndexRanges qkv;       ///< of q, k and v side by side
  IndexRanges attended;  ///< of attention's output
  IndexRanges hidden;    ///< of the MLP's first product
  IndexRanges middle;    ///< of the MLP between its products

  /// Throws zero::Error naming both numbers if there are more ranks than heads or columns.
  static DecoderSplit of(const DecoderShape& whole, int rank, int ranks);
};

}  // namespace zero
