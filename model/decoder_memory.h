// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/communicator.h"
#include "device/device.h"
#include "model/decoder_shape.h"

namespace zero {

/// The rows whose activations a rank has.
struct DecoderRows {
  std::int64_t all = 0;  ///< of a micro-batch
  std::int64_t own = 0;  ///< of the residual stream: all, or under sequence parallelism a share
  std::int64_t sequence = 0;
  int ranks = 1;  ///< of the tensor group
  bool sequence_parallel = false;
  std::int64_t logits = 0;         ///< of logits, at a time
  std::int64_t logit_columns = 0;  ///< of a row of logits, with its padding
};

/// All activations of one micro-batch of a decoder, in one arena with fixed offsets.
///
/// Kept from forward to backward, in elements of the compute dtype: per own row and layer x and
/// middle (C each); per row and layer q, k and v, attended (heads * head_width), hidden (GELU's
/// input, or SwiGLU's gate and operand), of the heads and the intermediate of this rank; and a few
/// fp32 figures. GPT-2 on one rank: 10 C; on T ranks 8/T C beside x and middle, which sequence
/// parallelism cuts by T too. Outputs of norms and of the activation are computed again in
/// backward: passes that cost next to nothing. Shared by all layers: normed, branch, dx, and the
/// wide operands, whose memory the head uses too, for its logits, if that is more; under sequence
/// parallelism two operands of all rows, gathered and partial.
class DecoderMemory {
 public:
  /// `decoder`: the part that this rank holds.
  DecoderMemory(const DecoderShape& decoder, const DecoderRows& rows, DType dtype);

  std::int64_t bytes() const { return bytes_; }
  /// From `group`, the tensor group, whose collectives then reach the activations best.
  void allocate(Device& device, Communicator& group);

  /// The residual stream entering layer i; x(layers) enters the last norm.
  View x(std::int64_t i) const { return view(x_, i); }
  View middle(std::int64_t i) const { return view(middle_, i); }  ///< after attention
  View qkv(std::int64_t i) const { return view(qkv_, i); }        ///< q and k turned, if they do
  View attended(std::int64_t i) const { return view(attended_, i); }  ///< before the projection
  View hidden(std::int64_t i) const { return view(hidden_, i); }      ///< before the activation
  View log_sums(std::int64_t i) const { return view(log_sums_, i); }
  /// Of the norm before attention (or the last norm: i = layers).
  View statistics(std::int64_t i) const { return view(statistics_, i); }
  View middle_statistics(std::int64_t i) const { return view(middle_statistics_, i); }

  View normed() const { return view(normed_); }  ///< a norm's output, or its gradient's source
  View branch() const { return view(branch_); }  ///< what a branch adds to the residual
  View dx() const { return view(dx_); }          ///< gradient of the residual stream
  /// All rows of normed() and of dx(): other memory under sequence parallelism alone, then shared.
  View gathered_normed() const { return view(gathered_normed_); }
  View gathered_dx() const { return view(gathered_dx_); }
  /// All rows of branch() before they are summed over ranks: likewise.
  View partial() const { return view(partial_); }
  /// All rows of x(0) before they are summed over ranks: likewise.
  View partial_embedding() const { return view(partial_embedding_); }
  View dattended() const { return view(dattended_); }  ///< in the memory of partial
  View activated() const { return view(activated_); }  ///< the activation's output
  View dhidden() const { return view(dhidden_); }      ///< GELU: gradient of hidden
  View dqkv() const { return view(dqkv_); }
  View logits() const { return view(logits_); }    ///< of the head's rows at a time
  View softmax() const { return view(softmax_); }  ///< fp32: figures that ranks exchange
  View losses() const { return view(losses_); }    ///< fp64, one a token
  /// fp32: gradients of a block's two norms, one after the other, from a rank's own rows, if those
  /// are not all.
  View norm_gradients() const { return view(norm_gradients_); }
  /// fp32 (sequence, head_width / 2), if heads turn.
  View cosines() const { return view(cosines_); }  ///< fp32 (sequence, head_width / 2), if turned
  View sines() const { return view(sines_); }

 private:
  struct Piece {
    std::int64_t offset = 0;
    std::int64_t count = 0;
    DType dtype = DType::fp32;
  };
  Piece take(std::int64_t count, DType dtype);
  void take_layer(const DecoderShape& decoder, const DecoderRows& rows, DType dtype);
  void take_operands(const DecoderShape& decoder, const DecoderRows& rows, DType dtype);
  void take_wide(const DecoderShape& decoder, const DecoderRows& rows, DType dtype);
  View view(const Piece& piece) const;
  View view(const std::vector<Piece>& pieces, std::int64_t i) const {
    return view(pieces.at(static_cast<std::size_t>(i)));
  }

  std::vector<Piece> x_, middle_, qkv_, attended_, hidden_, log_sums_, statistics_;
  std::vector<Piece> middle_statistics_;
  Piece normed_, branch_, dx_, gathered_normed_, gathered_dx_, partial_, partial_embedding_;
  Piece dattended_, activated_, dhidden_, dqkv_, logits_, softmax_, losses_, norm_gradients_;
  Piece cosines_, sines_;
  std::int64_t bytes_ = 0;
  Buffer arena_;
};

}  // namespace zero
