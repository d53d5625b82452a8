// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "model/decoder.h"

namespace zero {

/// The sizes of a GPT-2 (Radford et al. 2019). Head and token embedding are one parameter.
struct Gpt2Config {
  std::int64_t layers = 12;
  std::int64_t width = 768;  ///< C, a multiple of heads
  std::int64_t heads = 12;
  std::int64_t context = 1024;      ///< positions that have an embedding
  std::int64_t vocabulary = 50257;  ///< V, not padded

  /// "gpt2-124m", "gpt2-350m", "gpt2-774m", "gpt2-1558m"; nothing for any other name.
  static std::optional<Gpt2Config> by_name(std::string_view name);
  /// Throws zero::Error naming the field that is out of range, its value and the values allowed.
  void validate() const;
  /// Logical elements of all parameters: 124,439,808 for gpt2-124m.
  std::int64_t parameter_count() const;
};

/// The parts of the family's decoder. Throws zero::Error as validate() does.
DecoderShape decoder_shape(const Gpt2Config& config);

/// GPT-2. Parameters have Hugging Face's names and layouts ("wte.weight", "h.0.attn.c_attn.weight"
/// as (in, out), ...); a unit is the embedding with the tied head, a block, or the last norm.
class Gpt2 final : public Decoder {
 public:
  /// Registers the units; call before engine.seal(). Throws zero::Error if `config` or `shape` is
  /// out of range.
  Gpt2(Engine& engine, const Gpt2Config& config, BatchShape shape, OpListener* listener = nullptr,
       const TensorOptions& tensor = {}, const RecomputePlan& recompute = {});
};

}  // namespace zero
