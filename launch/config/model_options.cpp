// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/option.h"

namespace zero {
namespace {

/// A size; null: the family's default, where it has one.
Option size(std::string_view key, std::string help, double low, double high) {
  return {.path = "model." + std::string(key),
          .type = ValueType::integer,
          .fallback = "null",
          .help = std::move(help),
          .low = low,
          .high = high};
}

Option scaling(std::string_view key, ValueType type, std::string help) {
  return {.path = "model.rope_scaling." + std::string(key),
          .type = type,
          .fallback = "null",
          .help = std::move(help),
          .low = 0,
          .high = 1e9};
}

}  // namespace

std::vector<Option> model_options() {
  using enum ValueType;
  return {
      {.path = "model.name",
       .type = text,
       .fallback = "null",
       .help = "sizes by name; \"model\": \"gpt2-124m\" is short for it",
       .choices = {"gpt2-124m", "gpt2-350m", "gpt2-774m", "gpt2-1558m"}},
      {.path = "model.hf",
       .type = text,
       .fallback = "null",
       .help = "a Hugging Face folder (GPT-2, Llama, Mistral, Qwen2): its config.json gives all of "
               "this section, its safetensors files the weights unless run.init says otherwise"},
      {.path = "model.family",
       .type = text,
       .fallback = "\"gpt2\"",
       .help = "what is computed",
       .choices = {"gpt2", "llama"}},
      size("layers", "transformer blocks; null: 12 for gpt2", 1, 1e5),
      size("width", "channels; null: 768 for gpt2", 1, 1e6),
      size("heads", "attention heads; null: 12 for gpt2", 1, 1e5),
      size("context", "longest sequence; null: 1024 for gpt2", 1, 1e7),
      size("vocabulary", "token ids are below it; null: 50257 for gpt2", 2, 2147483647),
      size("kv_heads", "llama: heads of keys and values, a divisor of heads; null: heads", 1, 1e5),
      size("head_width", "llama: elements of a head, even; null: width / heads", 2, 1e6),
      size("intermediate", "llama: channels inside the MLP", 1, 1e7),
      {.path = "model.norm_epsilon",
       .type = number,
       .fallback = "null",
       .help = "llama: added to the mean square in norms; null: 1e-5",
       .low = 0,
       .high = 1},
      {.path = "model.head",
       .type = text,
       .fallback = "null",
       .help = "llama: a matrix of its own, or the token embedding again; null: separate",
       .choices = {"separate", "tied"}},
      {.path = "model.qkv_bias",
       .type = boolean,
       .fallback = "null",
       .help = "llama: whether q, k and v have biases, as Qwen2's; null: false"},
      {.path = "model.rope_theta",
       .type = number,
       .fallback = "null",
       .help = "llama: base of the rotary embeddings' angles; null: 10000",
       .low = 0,
       .high = 1e12},
      scaling("factor", number, "llama: Llama 3's slowing of long turns; null: none"),
      scaling("low_freq_factor", number,
              "turns longer than the original context over it are slowed; null: 1"),
      scaling("high_freq_factor", number,
              "turns shorter than the original context over it stay; null: 4"),
      scaling("original_max_position_embeddings", integer, "the original context; with factor"),
  };
}

}  // namespace zero
