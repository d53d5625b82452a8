// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.h"
#include "model/decoder_shape.h"
#include "model/model.h"

namespace zero {

/// All activations of one micro-batch of a decoder, in one arena with fixed offsets.
///
/// Kept from forward to backward, per token and layer, in elements of the compute dtype: x (C), q,
/// k and v, attended (heads * head_width), middle (C), hidden (GELU's input, or SwiGLU's gate and
/// operand), and a few fp32 figures; GPT-2: 10 C. Outputs of norms and of the activation are
/// computed again in backward: passes that cost next to nothing. Shared by all layers: normed,
/// branch, dx, and the wide operands, whose memory the head uses too, for `kChunkRows` x vocabulary
/// logits if that is more.
class DecoderMemory {
 public:
  /// Rows of logits that exist at a time.
  static constexpr std::int64_t kChunkRows = 512;

  DecoderMemory(const DecoderShape& decoder, BatchShape shape, DType dtype);

  std::int64_t bytes() const { return bytes_; }
  void allocate(Device& device);

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
  View dattended() const { return view(dattended_); }  ///< in the memory of branch
  View dx() const { return view(dx_); }                ///< gradient of the residual stream
  View activated() const { return view(activated_); }  ///< the activation's output
  View dhidden() const { return view(dhidden_); }      ///< GELU: gradient of hidden
  View dqkv() const { return view(dqkv_); }
  View logits(std::int64_t rows) const;            ///< of one chunk
  View losses() const { return view(losses_); }    ///< fp64, one a token
  View cosines() const { return view(cosines_); }  ///< fp32 (sequence, head_width / 2), if turned
  View sines() const { return view(sines_); }

 private:
  struct Piece {
    std::int64_t offset = 0;
    std::int64_t count = 0;
    DType dtype = DType::fp32;
  };
  Piece take(std::int64_t count, DType dtype);
  void take_layer(const DecoderShape& decoder, std::int64_t rows, DType dtype);
  void take_wide(const DecoderShape& decoder, std::int64_t rows, DType dtype);
  View view(const Piece& piece) const;
  View view(const std::vector<Piece>& pieces, std::int64_t i) const {
    return view(pieces.at(static_cast<std::size_t>(i)));
  }

  std::vector<Piece> x_, middle_, qkv_, attended_, hidden_, log_sums_, statistics_;
  std::vector<Piece> middle_statistics_;
  Piece normed_, branch_, dattended_, dx_, activated_, dhidden_, dqkv_, logits_, losses_;
  Piece cosines_, sines_;
  std::int64_t vocabulary_ = 0;
  std::int64_t bytes_ = 0;
  Buffer arena_;
};

}  // namespace zero
