// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "architecture/family.h"

namespace zero::testing {

/// The section `model` of a configuration, or changes of one, in which null takes a key out.
using Section = nlohmann::json;

inline DecoderShape changed_shape(Section section, const Section& changes) {
  section.merge_patch(changes);
  return decoder_shape(std::move(section));
}

/// Small enough for finite differences, odd enough to meet every tail.
inline DecoderShape tiny_gpt2(const Section& changes = Section::object()) {
  return changed_shape(
      {{"layers", 2}, {"width", 12}, {"heads", 3}, {"context", 9}, {"vocabulary", 23}}, changes);
}
/// Llama's family in little: grouped heads whose widths do not add up to the width, scaled rotary
/// embeddings, a separate head.
inline DecoderShape tiny_llama(const Section& changes = Section::object()) {
  return changed_shape({{"family", "llama"},
                        {"layers", 2},
                        {"width", 12},
                        {"heads", 4},
                        {"kv_heads", 2},
                        {"head_width", 6},
                        {"intermediate", 20},
                        {"vocabulary", 23},
                        {"context", 9},
                        {"rope_theta", 100},
                        {"rope_scaling",
                         {{"factor", 2},
                          {"low_freq_factor", 1},
                          {"high_freq_factor", 4},
                          {"original_max_position_embeddings", 16}}}},
                       changes);
}

/// The same as Qwen2: biases of q, k and v, a tied head.
inline DecoderShape as_qwen2(DecoderShape llama) {
  llama.rotary->scaling.reset();
  llama.head = DecoderShape::Head::tied;
  llama.biases = DecoderShape::Biases::qkv;
  return llama;
}
/// The same as Qwen3: norms of the heads of q and k, a tied head.
inline DecoderShape as_qwen3(DecoderShape llama) {
  llama.rotary->scaling.reset();
  llama.head = DecoderShape::Head::tied;
  llama.head_norms = true;
  return llama;
}
/// The same with other rotary embeddings in local layers, and with scales of its own, of which no
/// file or section of the family says a word.
inline DecoderShape with_scales(DecoderShape llama) {
  llama.local_rotary.emplace().theta = 37;
  llama.score_scale = 0.21;
  llama.embedding_scale = std::sqrt(static_cast<double>(llama.width));
  llama.validate();
  return llama;
}
/// A Gemma 3 of these sizes: of every two layers the first is local.
inline DecoderShape as_gemma3(const DecoderShape& llama, std::int64_t window) {
  std::string local = "0";
  for (std::int64_t i = 2; i < llama.layers; i += 2) local += "," + std::to_string(i);
  return decoder_shape({{"family", "gemma3"},
                        {"layers", llama.layers},
                        {"width", llama.width},
                        {"heads", llama.heads},
                        {"kv_heads", llama.kv_heads},
                        {"head_width", llama.head_width},
                        {"intermediate", llama.intermediate},
                        {"vocabulary", llama.vocabulary},
                        {"context", llama.context},
                        {"window", window},
                        {"local_layers", local},
                        {"rope_theta", llama.rotary->theta},
                        {"local_rope_theta", 20},
                        {"score_scale", 0.3}});
}

inline DecoderShape tiny_qwen2() { return as_qwen2(tiny_llama()); }
inline DecoderShape tiny_qwen3() { return as_qwen3(tiny_llama()); }
inline DecoderShape tiny_gemma3() { return as_gemma3(tiny_llama(), 4); }
/// One layer of two is local.
inline DecoderShape tiny_local() { return tiny_llama({{"window", 3}, {"local_layers", "1"}}); }
inline DecoderShape tiny_scaled() { return with_scales(tiny_local()); }

/// Sizes that are multiples of nothing, more than one column block, heads that share keys.
inline DecoderShape small_gpt2(const Section& changes = Section::object()) {
  return changed_shape(
      {{"layers", 2}, {"width", 60}, {"heads", 3}, {"context", 150}, {"vocabulary", 317}}, changes);
}
/// Rows of odd numbers of codes, and a last range of few columns.
inline DecoderShape odd_gpt2() { return small_gpt2({{"width", 63}}); }
inline DecoderShape small_llama(const Section& changes = Section::object()) {
  Section all{{"width", 72},         {"heads", 6},        {"head_width", 14},
              {"intermediate", 210}, {"vocabulary", 301}, {"context", 150}};
  all.merge_patch(changes);
  return tiny_llama(all);
}
inline DecoderShape small_qwen2() { return as_qwen2(small_llama()); }
inline DecoderShape small_qwen3() { return as_qwen3(small_llama()); }
inline DecoderShape small_gemma3() { return as_gemma3(small_llama(), 20); }

/// Three blocks: more than there are windows, which are not a divisor of them.
inline DecoderShape three_blocks_of_gpt2(const Section& changes = Section::object()) {
  Section all{{"layers", 3}, {"width", 96}, {"heads", 4}};
  all.merge_patch(changes);
  return small_gpt2(all);
}
inline DecoderShape three_blocks_of_llama() {
  return small_llama({{"layers", 3}, {"heads", 8}, {"kv_heads", 4}});
}
inline DecoderShape three_blocks_of_qwen2() { return as_qwen2(three_blocks_of_llama()); }

/// Heads and widths that do not divide by 8, a vocabulary that does by nothing.
inline DecoderShape uneven_gpt2(const Section& changes = Section::object()) {
  return changed_shape(
      {{"layers", 2}, {"width", 36}, {"heads", 12}, {"context", 9}, {"vocabulary", 41}}, changes);
}
/// The same in Llama's family. 4 heads of keys and values are fewer than 8 ranks: their copies are
/// summed.
inline DecoderShape uneven_llama(std::int64_t context) {
  return decoder_shape({{"family", "llama"},
                        {"layers", 2},
                        {"width", 20},
                        {"heads", 12},
                        {"kv_heads", 4},
                        {"head_width", 4},
                        {"intermediate", 27},
                        {"vocabulary", 41},
                        {"context", context},
                        {"qkv_bias", true}});
}
/// The same with norms of heads in place of biases.
inline DecoderShape uneven_qwen3(std::int64_t context) {
  DecoderShape shape = uneven_llama(context);
  shape.biases = DecoderShape::Biases::none;
  shape.head_norms = true;
  return shape;
}

/// The names of a GPT-2's files.
inline NameMap gpt2_names() { return file_names(decoder_shape({{"name", "gpt2-124m"}})); }

}  // namespace zero::testing
