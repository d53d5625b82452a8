// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.h"
#include "model/gpt2.h"

namespace zero {

/// All activations of one micro-batch of GPT-2, in one arena with fixed offsets.
///
/// Kept from forward to backward, per token and layer, in elements of the compute dtype: x (C), qkv
/// (3C), attended (C), middle (C), hidden (4C): 10 C, and 4 + heads fp32 figures. Norm and GELU
/// outputs are computed again in backward: 6 C less for two passes that cost next to nothing.
/// Shared by all layers: 12 C per token (normed, branch, dx, and 9 C of which the head uses the
/// memory too, for `chunk_rows` x vocabulary logits if that is more).
class Gpt2Memory {
 public:
  /// Rows of logits that exist at a time.
  static constexpr std::int64_t kChunkRows = 512;

  Gpt2Memory(const Gpt2Config& config, BatchShape shape, DType dtype);

  std::int64_t bytes() const { return bytes_; }
  void allocate(Device& device);

  /// The residual stream entering layer i; x(layers) enters the last norm.
  View x(std::int64_t i) const { return view(x_, i); }
  View middle(std::int64_t i) const { return view(middle_, i); }      ///< after attention
  View qkv(std::int64_t i) const { return view(qkv_, i); }            ///< 3 C
  View attended(std::int64_t i) const { return view(attended_, i); }  ///< before attn.c_proj
  View hidden(std::int64_t i) const { return view(hidden_, i); }      ///< 4 C, before GELU
  View log_sums(std::int64_t i) const { return view(log_sums_, i); }
  /// Mean and reciprocal deviation of the norm before attention (or the last norm: i = layers).
  View statistics(std::int64_t i) const { return view(statistics_, i); }
  View middle_statistics(std::int64_t i) const { return view(middle_statistics_, i); }

  View normed() const { return view(normed_); }  ///< a norm's output, or its gradient's source
  View branch() const { return view(branch_); }  ///< what a branch adds to the residual
  View dx() const { return view(dx_); }          ///< gradient of the residual stream
  View activated() const { return view(activated_); }  ///< 4 C: GELU's output
  View dhidden() const { return view(dhidden_); }      ///< 4 C
  View dqkv() const { return view(dqkv_); }            ///< 3 C
  View logits(std::int64_t rows) const;                ///< of one chunk
  View losses() const { return view(losses_); }        ///< fp64, one a token

 private:
  struct Piece {
    std::int64_t offset = 0;
    std::int64_t count = 0;
    DType dtype = DType::fp32;
  };
  Piece take(std::int64_t count, DType dtype);
  View view(const Piece& piece) const;
  View view(const std::vector<Piece>& pieces, std::int64_t i) const {
    return view(pieces.at(static_cast<std::size_t>(i)));
  }

  std::vector<Piece> x_, middle_, qkv_, attended_, hidden_, log_sums_, statistics_;
  std::vector<Piece> middle_statistics_;
  Piece normed_, branch_, dx_, activated_, dhidden_, dqkv_, logits_, losses_;
  std::int64_t vocabulary_ = 0;
  std::int64_t bytes_ = 0;
  Buffer arena_;
};

}  // namespace zero
