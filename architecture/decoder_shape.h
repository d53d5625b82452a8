// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "architecture/layer_kinds.h"
#include "architecture/rotary.h"

namespace zero {

/// The parameters that a block may have, in order of registration.
enum class BlockSlot : std::uint8_t {
  norm1_weight,
  norm1_bias,
  qkv_weight,
  qkv_bias,
  projection_weight,
  projection_bias,
  norm2_weight,
  norm2_bias,
  hidden_weight,
  hidden_bias,
  output_weight,
  output_bias,
};
inline constexpr std::size_t kBlockSlots = 12;

/// The parts of one family's decoder: everything in which families differ. A rank of a tensor group
/// holds a shape with fewer heads, a narrower intermediate and a smaller vocabulary. Names are
/// those of Hugging Face's files, except for matrices that are one here and several there. An empty
/// name: no such parameter.
struct DecoderShape {
  std::int64_t layers = 0;
  std::int64_t width = 0;         ///< C: the residual stream
  std::int64_t heads = 0;         ///< of queries
  std::int64_t kv_heads = 0;      ///< of keys and values; divides heads
  std::int64_t head_width = 0;    ///< elements of a head; C need not be heads * head_width
  std::int64_t intermediate = 0;  ///< width of the MLP between its two products
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;  ///< longest sequence

  NormKind norm = NormKind::layer;
  double epsilon = 1e-5;
  enum class Activation : std::uint8_t { gelu, swiglu } activation = Activation::gelu;
  enum class Head : std::uint8_t { tied, separate } head = Head::tied;
  WeightLayout layout = WeightLayout::in_out;  ///< of the blocks' matrices
  std::optional<RotaryAngles> rotary{};        ///< unset: a position embedding instead

  std::string tokens_name;                           ///< full names: of the embedding's tables
  std::string positions_name;                        ///< if positions have an embedding
  std::string block_prefix;                          ///< a unit's name before its number: "h."
  std::array<std::string, kBlockSlots> block_names;  ///< by BlockSlot, inside the unit
  std::string norm_unit;                             ///< before the last norm's names: "ln_f"
  std::string norm_weight = "weight";                ///< inside that unit
  std::string norm_bias{};
  std::string head_name{};  ///< full name, if the head is separate

  const std::string& name(BlockSlot slot) const {
    return block_names[static_cast<std::size_t>(slot)];
  }
  /// Elements of a row of q, k and v side by side.
  std::int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_width; }
  std::int64_t attended_width() const { return heads * head_width; }
  /// Elements of a row of the MLP's first product; for SwiGLU, gate and operand.
  std::int64_t hidden_width() const {
    return activation == Activation::swiglu ? 2 * intermediate : intermediate;
  }
  bool has(BlockSlot slot) const { return !name(slot).empty(); }

  /// Throws zero::Error naming the field that is out of range, its value and the values allowed.
  void validate() const;
  /// The same, also if the decoder cannot be cut over that many tensor ranks.
  void validate(int tensor_ranks) const;
  /// Logical elements of all parameters: 124,439,808 for GPT-2 124M.
  std::int64_t parameter_count() const;
  /// Floating-point operations of a training step, forward and backward, for a token of sequences
  /// of `sequence` tokens: two for each parameter that it is multiplied by, and attention, three
  /// times (Chowdhery et al. 2022, appendix B).
  double flop_per_token(std::int64_t sequence) const;
};

}  // namespace zero
