// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "architecture/decoder_shape.h"
#include "architecture/head_split.h"
#include "architecture/tensor_part.h"

namespace zero {

/// The part of a decoder that a rank of a tensor group computes: some heads with their part of the
/// cache, some columns of the MLP (Shoeybi et al. 2019), and some tokens of the tables. Shares may
/// be uneven.
struct DecoderSplit {
  DecoderShape whole;
  DecoderShape local;  ///< the whole, with this rank's sizes
  HeadSplit heads;
  // This rank's elements of a row; empty: all.
  IndexRanges qkv{};         ///< of q, k and v side by side
  IndexRanges attended{};    ///< of attention's output
  IndexRanges hidden{};      ///< of the MLP's first product
  IndexRanges middle{};      ///< of the MLP between its products
  IndexRanges vocabulary{};  ///< of logits

  /// Whether the tables of tokens are cut too.
  enum class Tables : std::uint8_t { whole, cut };
  /// Throws zero::Error naming both numbers if there are more ranks than heads, columns or tokens.
  static DecoderSplit of(const DecoderShape& whole, int rank, int ranks,
                         Tables tables = Tables::whole);
};

}  // namespace zero
