// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "inference/decoder_split.h"
#include "inference/tensor_part.h"

namespace zero {

/// A parameter of a decoder, and what a rank of a tensor group holds of it.
struct DecoderParameter {
  std::int64_t in = 0;  ///< of a matrix; 0: a vector, or a table of `rows` of them
  std::int64_t out = 0;
  WeightLayout layout = WeightLayout::out_in;
  std::int64_t rows = 1;
  std::string name{};
  IndexRanges inputs{};   ///< held; empty: all
  IndexRanges outputs{};  ///< held; empty: all

  bool is_matrix() const { return in > 0; }
  /// Of the tensor in files.
  std::vector<std::int64_t> shape() const;
  std::int64_t held_in() const { return inputs.empty() ? in : count_of(inputs); }
  std::int64_t held_out() const { return outputs.empty() ? out : count_of(outputs); }
  /// The held elements of outputs [begin, begin + count) of the held ones.
  TensorPart part(std::int64_t begin, std::int64_t count) const;
};

/// The parameters of a decoder, in the order in which the model registers them.
struct DecoderParameters {
  explicit DecoderParameters(const DecoderSplit& split);

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<DecoderParameter> all;
  // Which of them are what.
  std::size_t embedding = kNone;
  std::size_t positions = kNone;  ///< (context, width)
  std::vector<std::array<std::size_t, kBlockSlots>> blocks{};
  std::size_t norm_weight = kNone;
  std::size_t norm_bias = kNone;
  std::size_t head = kNone;  ///< the embedding, if the head is tied

  std::size_t in_block(std::int64_t block, BlockSlot slot) const {
    return blocks[static_cast<std::size_t>(block)][static_cast<std::size_t>(slot)];
  }
};

}  // namespace zero
