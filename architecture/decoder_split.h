// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "architecture/decoder_shape.h"
#include "partition/tensor_slice.h"

namespace zero {

/// Indices along one dimension, in order.
using IndexRanges = std::vector<TensorSlice::Range>;
std::int64_t count_of(const IndexRanges& ranges);
/// The indices [begin, begin + count) of those that `ranges` list.
IndexRanges part_of(const IndexRanges& ranges, std::int64_t begin, std::int64_t count);

/// Throws zero::Error if one of `ranks` ranks would have no share of the `total` items named
/// `what`.
void check_share(std::string_view what, std::int64_t total, int ranks);

/// The attention heads that one rank of a tensor group computes. With at least as many key/value
/// heads as ranks, each rank gets a share of them, with all query heads that read them. With fewer,
/// ranks share: each holds a copy of one key/value head and a share of its query heads. Shares may
/// be uneven; the longer ones come first.
struct HeadSplit {
  TensorSlice::Range queries;  ///< heads
  TensorSlice::Range keys;     ///< heads of keys and of values, which several ranks may hold

  /// Throws zero::Error if a rank would have no query head.
  static HeadSplit of(std::int64_t heads, std::int64_t kv_heads, int rank, int ranks);

  /// This rank's elements of a row of q, k and v side by side.
  IndexRanges qkv(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_width) const;
  /// This rank's elements of a row of attention's output.
  TensorSlice::Range attended(std::int64_t head_width) const;
};

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
