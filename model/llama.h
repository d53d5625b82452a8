// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "architecture/rotary.h"
#include "model/decoder.h"

namespace zero {

/// The sizes of a model of Llama's family (Touvron et al. 2023; Llama 3, Mistral, Qwen2): RMS
/// norms, rotary embeddings, SwiGLU, grouped-query attention, no biases except optional ones of q,
/// k, v.
struct LlamaConfig {
  std::int64_t layers = 16;
  std::int64_t width = 2048;
  std::int64_t heads = 32;
  std::int64_t kv_heads = 8;    ///< divides heads
  std::int64_t head_width = 0;  ///< even; 0: width / heads
  std::int64_t intermediate = 8192;
  std::int64_t vocabulary = 128256;
  std::int64_t context = 8192;  ///< longest sequence
  RotaryAngles rotary{};
  double norm_epsilon = 1e-5;
  enum class Head : std::uint8_t { tied, separate } head = Head::separate;
  enum class QkvBias : std::uint8_t { none, present } qkv_bias = QkvBias::none;  ///< Qwen2's

  std::int64_t head_elements() const {
    if (head_width != 0) return head_width;
    return heads > 0 && width % heads == 0 ? width / heads : 0;
  }
  /// Throws zero::Error naming the field that is out of range, its value and the values allowed.
  void validate() const;
  /// Logical elements of all parameters: 8,030,261,248 for Llama 3 8B.
  std::int64_t parameter_count() const;
};

/// The parts of the family's decoder. Throws zero::Error as validate() does.
DecoderShape decoder_shape(const LlamaConfig& config);

/// Llama's family. Parameters have Hugging Face's names and layouts (out, in), with two exceptions:
/// q_proj, k_proj and v_proj are one matrix, "self_attn.qkv_proj", and gate_proj and up_proj are
/// "mlp.gate_up_proj": each has the rows of its parts one after another, for one product. A unit is
/// the embedding (with the tied head), a block, or the last norm (with a separate head).
class Llama final : public Decoder {
 public:
  /// Registers the units; call before engine.seal(). Throws zero::Error if `config` or `shape` is
  /// out of range.
  Llama(Engine& engine, const LlamaConfig& config, BatchShape shape, OpListener* listener = nullptr,
        const TensorOptions& tensor = {}, const RecomputePlan& recompute = {});
};

}  // namespace zero
