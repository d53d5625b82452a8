// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// GPT-2 (Radford et al. 2019): layer norms, GELU, a position embedding, biases, a tied head.
#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "architecture/family.h"
#include "base/error.h"

namespace zero {

extern const Family kGpt2;

namespace {

using nlohmann::json;

constexpr std::array<Family::HfClass, 1> kClasses{{{"GPT2LMHeadModel", "gpt2"}}};
constexpr std::array<std::string_view, 6> kKeys{"name",  "layers",  "width",
                                                "heads", "context", "vocabulary"};

// By their true parameter counts.
constexpr std::array<std::string_view, 4> kNames{"gpt2-124m", "gpt2-350m", "gpt2-774m",
                                                 "gpt2-1558m"};
struct Sizes {
  std::int64_t layers, width, heads;
};
constexpr std::array<Sizes, kNames.size()> kSizes{
    {{12, 768, 12}, {24, 1024, 16}, {36, 1280, 20}, {48, 1600, 25}}};

struct All : Sizes {
  std::int64_t context, vocabulary;
};

DecoderShape shape_of(const All& sizes) {
  DecoderShape d;
  d.family = &kGpt2;
  d.layers = sizes.layers;
  d.width = sizes.width;
  d.heads = d.kv_heads = sizes.heads;
  d.divide_width();
  // A width that validate() refuses is not multiplied.
  d.intermediate = 4 * std::clamp<std::int64_t>(d.width, 0, kLargestSize);
  d.context = sizes.context;
  d.vocabulary = sizes.vocabulary;
  return d;
}

DecoderShape from_section(JsonFields& section) {
  const std::string name = section.text("name", std::string(kNames[0]));
  const auto found = std::ranges::find(kNames, name);
  ZERO_CHECK(found != kNames.end(), "{}: there is no model \"{}\"", section.place("name"), name);
  const Sizes& named = kSizes[static_cast<std::size_t>(found - kNames.begin())];
  return shape_of({{section.integer("layers", named.layers), section.integer("width", named.width),
                    section.integer("heads", named.heads)},
                   section.integer("context", 1024),
                   section.integer("vocabulary", 50257)});
}

json to_section(const DecoderShape& d) {
  return {{"layers", d.layers},
          {"width", d.width},
          {"heads", d.heads},
          {"context", d.context},
          {"vocabulary", d.vocabulary}};
}

DecoderShape from_hf(JsonFields& config, std::string_view /*model_type*/) {
  const DecoderShape d =
      shape_of({{config.integer("n_layer"), config.integer("n_embd"), config.integer("n_head")},
                config.integer("n_positions"),
                config.integer("vocab_size")});
  const std::string activation = config.text("activation_function", "gelu_new");
  ZERO_CHECK(
      activation == "gelu_new" || activation == "gelu_pytorch_tanh" || activation == "gelu_fast",
      "{}: found \"{}\", expected \"gelu_new\"", config.place("activation_function"), activation);
  config.only("layer_norm_epsilon", d.epsilon, "it is fixed in the norm");
  config.only("tie_word_embeddings", true, "head and token embedding are one parameter");
  config.only("scale_attn_weights", true, "scores are divided by the root of the head's width");
  config.only("scale_attn_by_inverse_layer_idx", false, "scores of all layers have one scale");
  config.only("n_inner", d.intermediate, "the MLP is four times as wide");
  return d;
}

json to_hf(const DecoderShape& d) {
  return {{"architectures", {kClasses[0].architecture}},
          {"model_type", kClasses[0].model_type},
          {"n_layer", d.layers},
          {"n_embd", d.width},
          {"n_head", d.heads},
          {"n_positions", d.context},
          {"vocab_size", d.vocabulary},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", d.epsilon},
          {"tie_word_embeddings", true},
          {"resid_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0},
          {"torch_dtype", "float32"}};
}

// With or without the prefix; the causal masks stored as buffers and the tied head are not loaded.
NameMap tensor_names(const DecoderShape& /*shape*/) {
  return {.family = "gpt2",
          .prefix = "transformer.",
          .ignored = {"h.*.attn.bias", "h.*.attn.masked_bias"},
          .aliases = {{"lm_head.weight", "wte.weight"}}};
}

}  // namespace

constinit const Family kGpt2{
    .name = "gpt2",
    .hf_classes = kClasses,
    .keys = kKeys,
    .published = kNames,
    .tensors = {.tokens = "wte.weight",
                .positions = "wpe.weight",
                .block_prefix = "h.",
                .block_tensors = {{BlockSlot::norm1_weight, "ln_1.weight"},
                                  {BlockSlot::norm1_bias, "ln_1.bias"},
                                  {BlockSlot::qkv_weight, "attn.c_attn.weight"},
                                  {BlockSlot::qkv_bias, "attn.c_attn.bias"},
                                  {BlockSlot::projection_weight, "attn.c_proj.weight"},
                                  {BlockSlot::projection_bias, "attn.c_proj.bias"},
                                  {BlockSlot::norm2_weight, "ln_2.weight"},
                                  {BlockSlot::norm2_bias, "ln_2.bias"},
                                  {BlockSlot::hidden_weight, "mlp.c_fc.weight"},
                                  {BlockSlot::hidden_bias, "mlp.c_fc.bias"},
                                  {BlockSlot::output_weight, "mlp.c_proj.weight"},
                                  {BlockSlot::output_bias, "mlp.c_proj.bias"}},
                .norm_unit = "ln_f",
                .head = {}},
    .file_names = tensor_names,
    .from_hf = from_hf,
    .from_section = from_section,
    .to_hf = to_hf,
    .to_section = to_section,
    .has_default_sizes = true};

}  // namespace zero
