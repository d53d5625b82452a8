// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

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
  std::int64_t window = 0;
  std::string local_layers{};  ///< empty: all, if there is a window
  // That no file or section of the family says:
  std::optional<RotaryAngles> local_rotary{};
  double score_scale = 0;
  double embedding_scale = 1;

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
    if (window != 0) section["window"] = window;
    if (!local_layers.empty()) section["local_layers"] = local_layers;
    if (const auto& scaling = rotary.scaling) {
      section["rope_scaling"] = {{"factor", scaling->factor},
                                 {"low_freq_factor", scaling->low_frequency},
                                 {"high_freq_factor", scaling->high_frequency},
                                 {"original_max_position_embeddings", scaling->original_context}};
    }
    DecoderShape made = decoder_shape(section);
    made.local_rotary = local_rotary;
    made.score_scale = score_scale;
    made.embedding_scale = embedding_scale;
    made.validate();
    return made;
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

/// The same with a window in the given layers.
inline LlamaSizes with_window(LlamaSizes sizes, std::int64_t window, std::string local_layers) {
  sizes.window = window;
  sizes.local_layers = std::move(local_layers);
  return sizes;
}

/// The same with other rotary embeddings in local layers, and with scales of its own.
inline LlamaSizes with_scales(LlamaSizes sizes) {
  sizes.local_rotary.emplace().theta = 37;
  sizes.score_scale = 0.21;
  sizes.embedding_scale = std::sqrt(static_cast<double>(sizes.width));
  return sizes;
}

/// A Gemma 3 of these sizes: of every two layers the first is local.
inline DecoderShape as_gemma3(const LlamaSizes& sizes, std::int64_t window) {
  std::string local;
  for (std::int64_t i = 0; i < sizes.layers; i += 2) {
    local += (local.empty() ? "" : ",") + std::to_string(i);
  }
  nlohmann::json section{{"family", "gemma3"},
                         {"layers", sizes.layers},
                         {"width", sizes.width},
                         {"heads", sizes.heads},
                         {"kv_heads", sizes.kv_heads},
                         {"intermediate", sizes.intermediate},
                         {"vocabulary", sizes.vocabulary},
                         {"context", sizes.context},
                         {"window", window},
                         {"local_layers", local},
                         {"rope_theta", sizes.rotary.theta},
                         {"local_rope_theta", 20},
                         {"score_scale", 0.3}};
  if (sizes.head_width != 0) section["head_width"] = sizes.head_width;
  return decoder_shape(section);
}

/// The names of a GPT-2's files.
inline NameMap gpt2_names() { return file_names(Gpt2Sizes{}); }

}  // namespace zero::testing
