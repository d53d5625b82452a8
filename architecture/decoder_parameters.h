// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "architecture/decoder_shape.h"
#include "partition/parameter_spec.h"

namespace zero {

/// The elements of a tensor (rows, columns) of files that a rank holds: those of some rows and some
/// columns, row major.
struct TensorPart {
  IndexRanges rows;
  IndexRanges columns;
  std::int64_t all_columns = 0;  ///< of the tensor

  std::int64_t width() const { return count_of(columns); }
  /// Fills `values`, fp32, with elements of the tensor from `begin` on.
  using Read = std::function<void(std::int64_t begin, std::span<float> values)>;
  /// Fills `values`, whole rows of the part, from its row `first` on. Where the part has some of
  /// the columns, reads all of them, about kPiece elements at a time.
  void read(const Read& read, std::int64_t first, std::span<float> values) const;
  static constexpr std::int64_t kPiece = std::int64_t{1} << 20;
};

/// A parameter of a decoder, and the part of it that a rank of a tensor group holds.
struct DecoderParameter {
  std::int64_t in = 0;  ///< of a matrix; 0: a vector, or a list of them
  std::int64_t out = 0;
  WeightLayout layout = WeightLayout::out_in;
  std::int64_t rows = 0;  ///< of a list of vectors
  std::string name{};     ///< in full
  IndexRanges inputs{};   ///< held; empty: all
  IndexRanges outputs{};  ///< held; empty: all; not beside `inputs`
  Init init = init::zeros();

  bool is_matrix() const { return in > 0; }
  std::int64_t vectors() const { return rows == 0 ? 1 : rows; }
  /// Of the tensor in files.
  std::vector<std::int64_t> shape() const;
  std::int64_t elements() const;
  std::int64_t held_in() const { return inputs.empty() ? in : count_of(inputs); }
  std::int64_t held_out() const { return outputs.empty() ? out : count_of(outputs); }
  /// The held part, as an engine registers it.
  ParameterSpec spec() const;
  /// The held elements of outputs [begin, begin + count) of the held ones.
  TensorPart part(std::int64_t begin, std::int64_t count) const;
};

/// The parameters of a decoder, for training and inference, in the order in which they are
/// registered.
struct DecoderParameters {
  explicit DecoderParameters(const DecoderSplit& split);

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<DecoderParameter> all;
  /// Parameters that are gathered together: the embedding (with a tied head), each block, the last
  /// norm (with a separate head).
  struct Unit {
    std::string name;
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  std::vector<Unit> units{};
  // Which of them are what.
  std::size_t embedding = kNone;
  std::size_t positions = kNone;  ///< (context, width)
  std::vector<std::array<std::size_t, kBlockSlots>> blocks{};
  std::size_t norm_weight = kNone;
  std::size_t norm_bias = kNone;
  std::size_t head = kNone;  ///< the embedding, if the head is tied

  /// The parameter's place in a unit that has it; -1 for kNone.
  int index_in_unit(std::size_t unit, std::size_t parameter) const {
    return parameter == kNone ? -1 : static_cast<int>(parameter - units[unit].begin);
  }
  std::size_t in_block(std::int64_t block, BlockSlot slot) const {
    return blocks[static_cast<std::size_t>(block)][static_cast<std::size_t>(slot)];
  }
};

/// Those of the whole model, uncut, in the order in which they are registered.
std::vector<DecoderParameter> all_parameters(const DecoderShape& shape);

}  // namespace zero
