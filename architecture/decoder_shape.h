// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "architecture/layer_kinds.h"
#include "architecture/rotary.h"
#include "partition/tensor_slice.h"

namespace zero {

/// The parameters that a block may have, in order of registration.
enum class BlockSlot : std::uint8_t {
  norm1_weight,
  norm1_bias,
  qkv_weight,
  qkv_bias,
  query_norm_weight,
  key_norm_weight,
  projection_weight,
  projection_bias,
  projection_norm_weight,
  norm2_weight,
  norm2_bias,
  hidden_weight,
  hidden_bias,
  output_weight,
  output_bias,
  output_norm_weight,
};
inline constexpr std::size_t kBlockSlots =
    static_cast<std::size_t>(BlockSlot::output_norm_weight) + 1;
/// The largest value of any size: products of two must fit the integers of token ids and matrix
/// libraries.
inline constexpr std::int64_t kLargestSize = 1 << 24;

struct Family;

/// The names of a block's parameters, after the block's number. A slot that is not listed is one
/// that no block of the family has.
class BlockTensorNames {
 public:
  constexpr BlockTensorNames(std::initializer_list<std::pair<BlockSlot, std::string_view>> names) {
    for (const auto& [slot, name] : names) names_[static_cast<std::size_t>(slot)] = name;
  }
  constexpr std::string_view operator[](BlockSlot slot) const {
    return names_[static_cast<std::size_t>(slot)];
  }

 private:
  std::array<std::string_view, kBlockSlots> names_{};
};

/// What the files of a family call the parameters of a decoder: Hugging Face's names, except for
/// matrices that are one here and several there.
struct DecoderNames {
  std::string_view tokens;        ///< full names: of the tables
  std::string_view positions;     ///< of a family without rotary
  std::string_view block_prefix;  ///< before a block's number: "h."
  BlockTensorNames block_tensors;
  std::string_view norm_unit;  ///< of the last norm: "ln_f"
  std::string_view head;       ///< full name, of a separate head
};

/// The parts of a decoder: everything in which families differ, as data. A rank of a tensor group
/// holds a shape with fewer heads, a narrower intermediate and a smaller vocabulary.
struct DecoderShape {
  const Family* family = nullptr;  ///< whose files and configurations describe it
  std::int64_t layers = 0;
  std::int64_t width = 0;         ///< C: the residual stream
  std::int64_t heads = 0;         ///< of queries
  std::int64_t kv_heads = 0;      ///< of keys and values; divides heads
  std::int64_t head_width = 0;    ///< elements of a head; C need not be heads * head_width
  std::int64_t intermediate = 0;  ///< width of the MLP between its two products
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;  ///< longest sequence

  NormKind norm = NormKind::layer;
  double epsilon = 1e-5;  ///< of norms
  /// RMS norms of each head's queries and keys, before any rotation: one weight for all heads of
  /// queries, one for all of keys.
  bool head_norms = false;
  /// Norms of what attention and MLP give, before it is added to the residual stream: RMS norms.
  bool branch_norms = false;
  enum class Activation : std::uint8_t { gelu, swiglu, geglu } activation = Activation::gelu;
  enum class Head : std::uint8_t { tied, separate } head = Head::tied;
  enum class Biases : std::uint8_t { none, qkv, all } biases = Biases::all;  ///< of matrices
  WeightLayout layout = WeightLayout::in_out;  ///< of the blocks' matrices
  std::optional<RotaryAngles> rotary{};        ///< unset: a position embedding instead
  /// Positions that a query of a local layer sees, its own and those before it; 0: no layer is
  /// local.
  std::int64_t window = 0;
  std::vector<bool> local_layers{};  ///< of each layer, whether it is local; empty: all are

  std::optional<RotaryAngles> local_rotary{};  ///< of local layers; unset: as of the others
  double score_scale = 0;  ///< that attention's scores are multiplied by; 0: 1 / sqrt(head_width)
  /// That what the embedding gives is multiplied by, rounded to the compute dtype; with rotary
  /// only.
  double embedding_scale = 1;

  /// Whether a layer turns by local_rotary.
  bool turns_locally(std::int64_t layer) const { return window_of(layer) > 0 && local_rotary; }
  /// The window of a layer; 0: its queries see all positions up to their own.
  std::int64_t window_of(std::int64_t layer) const {
    const bool local = local_layers.empty() || local_layers[static_cast<std::size_t>(layer)];
    return local ? window : 0;
  }
  bool has(BlockSlot slot) const;
  /// Sets head_width to width / heads, or to 0, which validate() refuses, if that is not whole.
  void divide_width();
  /// Elements of a row of q, k and v side by side.
  std::int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_width; }
  std::int64_t attended_width() const { return heads * head_width; }
  /// Elements of a row of the MLP's first product; gate and operand, if gated.
  std::int64_t hidden_width() const { return gated() ? 2 * intermediate : intermediate; }
  bool gated() const { return activation != Activation::gelu; }
  Gate gate() const { return activation == Activation::swiglu ? Gate::silu : Gate::gelu; }

  /// Throws zero::Error naming the field that is out of range, its value and the values allowed.
  void validate() const;
  /// The same, also if the decoder cannot be cut over that many tensor ranks.
  void validate(int tensor_ranks) const;
  /// Elements of a block's matrices.
  std::int64_t block_matrices() const;
  /// Logical elements of all parameters: 124,439,808 for GPT-2 124M.
  std::int64_t parameter_count() const;
  /// The positions that a token of sequences of `sequence` tokens counts as seeing in a layer: all,
  /// or in a local one as many fewer as there are fewer pairs of a query and a key that it sees.
  double attended_positions(std::int64_t layer, std::int64_t sequence) const;
  /// Floating-point operations of a training step, forward and backward, for a token of sequences
  /// of `sequence` tokens: two for each parameter that it is multiplied by, and attention, three
  /// times (Chowdhery et al. 2022, appendix B). A local layer counts with attended_positions().
  double flop_per_token(std::int64_t sequence) const;
};

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
