// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "architecture/family.h"

namespace zero::testing {

/// Sizes of a GPT-2, to change before a shape is made of them.
struct Gpt2Sizes {
  std::int64_t layers = 12;
  std::int64_t width = 768;
  std::int64_t heads = 12;
  std::int64_t context = 1024;
  std::int64_t vocabulary = 50257;

  DecoderShape shape() const {
    return decoder_shape({{"family", "gpt2"},
                          {"layers", layers},
                          {"width", width},
                          {"heads", heads},
                          {"context", context},
                          {"vocabulary", vocabulary}});
  }
  operator DecoderShape() const { return shape(); }  // NOLINT(google-explicit-constructor)
};

/// The same of Llama's family.
struct LlamaSizes {
  std::int64_t layers = 16;
  std::int64_t width = 2048;
  std::int64_t heads = 32;
  std::int64_t kv_heads = 8;
  std::int64_t head_width = 0;  ///< 0: width / heads
  std::int64_t intermediate = 8192;
  std::int64_t vocabulary = 128256;
  std::int64_t context = 8192;
  RotaryAngles rotary{};
  double norm_epsilon = 1e-5;
  DecoderShape::Head head = DecoderShape::Head::separate;
  bool qkv_bias = false;
  bool head_norms = false;

  DecoderShape shape() const {
    nlohmann::json section{{"family", "llama"},
                           {"layers", layers},
                           {"width", width},
                           {"heads", heads},
                           {"kv_heads", kv_heads},
                           {"intermediate", intermediate},
                           {"vocabulary", vocabulary},
                           {"context", context},
                           {"norm_epsilon", norm_epsilon},
                           {"head", head == DecoderShape::Head::tied ? "tied" : "separate"},
                           {"qkv_bias", qkv_bias},
                           {"head_norms", head_norms},
                           {"rope_theta", rotary.theta}};
    if (head_width != 0) section["head_width"] = head_width;
    if (const auto& scaling = rotary.scaling) {
      section["rope_scaling"] = {{"factor", scaling->factor},
                                 {"low_freq_factor", scaling->low_frequency},
                                 {"high_freq_factor", scaling->high_frequency},
                                 {"original_max_position_embeddings", scaling->original_context}};
    }
    return decoder_shape(section);
  }
  operator DecoderShape() const { return shape(); }  // NOLINT(google-explicit-constructor)
};

/// The same as Qwen2: biases of q, k and v, a tied head.
inline LlamaSizes as_qwen2(LlamaSizes sizes) {
  sizes.rotary.scaling.reset();
  sizes.head = DecoderShape::Head::tied;
  sizes.qkv_bias = true;
  return sizes;
}

/// The same as Qwen3: norms of the heads of q and k, a tied head.
inline LlamaSizes as_qwen3(LlamaSizes sizes) {
  sizes.rotary.scaling.reset();
  sizes.head = DecoderShape::Head::tied;
  sizes.head_norms = true;
  return sizes;
}

/// The names of a GPT-2's files.
inline NameMap gpt2_names() { return file_names(Gpt2Sizes{}); }

}  // namespace zero::testing
