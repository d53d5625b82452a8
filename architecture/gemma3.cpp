// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Gemma 3's text models (Gemma Team 2025): a Llama with norms of heads and of branches, all of 1 +
// w, GeGLU, a scaled embedding, and local layers, which have a window and angles of their own,
// between global ones.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "architecture/family.h"
#include "architecture/local_layers.h"
#include "base/error.h"

namespace zero {

extern const Family kGemma3;
extern const Family kLlama;

namespace {

using nlohmann::json;
using Head = DecoderShape::Head;

constexpr std::array<Family::HfClass, 1> kClasses{{{"Gemma3ForCausalLM", "gemma3_text"}}};
constexpr std::array<std::string_view, 16> kKeys{
    "layers",       "width",        "heads",      "context",      "vocabulary",
    "intermediate", "kv_heads",     "head_width", "norm_epsilon", "head",
    "window",       "local_layers", "rope_theta", "rope_factor",  "local_rope_theta",
    "score_scale"};

constexpr double kTheta = 1e6;
constexpr double kLocalTheta = 1e4;
constexpr double kEpsilon = 1e-6;

/// What no file and no section says: all of the family have it.
void complete(DecoderShape& d) {
  d.family = &kGemma3;
  d.norm = NormKind::rms_plus_one;
  d.head_norms = true;
  d.branch_norms = true;
  d.activation = DecoderShape::Activation::geglu;
  d.biases = DecoderShape::Biases::none;
  d.layout = WeightLayout::out_in;
  d.embedding_scale = std::sqrt(static_cast<double>(d.width));
}

DecoderShape from_section(JsonFields& section) {
  DecoderShape d = kLlama.from_section(section);
  complete(d);
  d.epsilon = section.number("norm_epsilon", kEpsilon);
  d.head = section.text("head", "tied") == "tied" ? Head::tied : Head::separate;
  d.rotary->theta = section.number("rope_theta", kTheta);
  d.rotary->linear_factor = section.number("rope_factor", 1);
  if (d.window != 0) {
    d.local_rotary = RotaryAngles{.theta = section.number("local_rope_theta", kLocalTheta)};
  }
  d.score_scale = section.number("score_scale", 0);
  return d;
}

json to_section(const DecoderShape& d) {
  json section = kLlama.to_section(d);
  for (const char* key : {"qkv_bias", "head_norms"}) section.erase(key);
  if (d.score_scale != 0) section["score_scale"] = d.score_scale;
  if (d.rotary->linear_factor != 1) section["rope_factor"] = d.rotary->linear_factor;
  if (d.local_rotary) section["local_rope_theta"] = d.local_rotary->theta;
  return section;
}

/// The angles of one kind of layers, of which `known` says what the fields do not.
RotaryAngles angles_from(JsonFields fields, RotaryAngles known) {
  known.theta = fields.number("rope_theta", known.theta);
  if (fields.has("rope_type") || fields.has("type")) {
    const std::string type = fields.text("rope_type", fields.text("type", "default"));
    ZERO_CHECK(type == "default" || type == "linear",
               "{}: found \"{}\", expected \"default\" or \"linear\": Gemma 3's angles are not "
               "stretched otherwise",
               fields.place("rope_type"), type);
    known.linear_factor = type == "linear" ? fields.number("factor") : 1;
  }
  fields.finish({});
  return known;
}

/// Version 4 of transformers has a field for each base, and stretches global layers' angles by
/// rope_scaling; version 5 has an object for each kind of layer, which rope_scaling changes.
void rotary_from(JsonFields& fields, DecoderShape& d) {
  JsonFields kinds = fields.object("rope_parameters");
  const RotaryAngles global{.theta = fields.number("rope_theta", kTheta)};
  d.rotary = angles_from(fields.object("rope_scaling"),
                         angles_from(kinds.object("full_attention"), global));
  const RotaryAngles of_window{.theta = fields.number("rope_local_base_freq", kLocalTheta)};
  const RotaryAngles local = angles_from(kinds.object("sliding_attention"), of_window);
  ZERO_CHECK(local.linear_factor == 1,
             "{}: found {}, expected 1: only global layers' angles are stretched",
             kinds.place("sliding_attention.factor"), local.linear_factor);
  if (d.window != 0) d.local_rotary = local;
  kinds.finish({});
}

/// Every sixth layer is global where the file does not list the types.
void window_from(JsonFields& fields, DecoderShape& d) {
  const std::int64_t window =  // absent: transformers' default
      fields.integer("sliding_window", fields.lists("sliding_window") ? 0 : 4096);
  std::vector<bool> local = layer_types_from(fields, d.layers);
  const std::int64_t pattern = fields.integer("sliding_window_pattern", 6);
  fields.raw("_sliding_window_pattern");  // transformers writes it and does not read it
  ZERO_CHECK(pattern >= 1, "{}: found {}, expected at least 1",
             fields.place("sliding_window_pattern"), pattern);
  if (local.empty() && d.layers <= kLargestSize) {
    for (std::int64_t i = 1; i <= d.layers; ++i) local.push_back(i % pattern != 0);
  }
  const bool slides = std::ranges::count(local, true) > 0;
  ZERO_CHECK(!slides || window >= 1,
             "{}: found {}, expected at least 1: layers of the type \"sliding_attention\" have a "
             "window",
             fields.place("sliding_window"), window);
  set_window(d, slides ? window : 0, std::move(local));
}

DecoderShape from_hf(JsonFields& fields, std::string_view /*model_type*/) {
  DecoderShape d;
  d.layers = fields.integer("num_hidden_layers");
  d.width = fields.integer("hidden_size");
  d.heads = fields.integer("num_attention_heads");
  d.kv_heads = fields.integer("num_key_value_heads");
  d.head_width = fields.integer("head_dim", 256);
  d.intermediate = fields.integer("intermediate_size");
  d.vocabulary = fields.integer("vocab_size");
  d.context = fields.integer("max_position_embeddings");
  d.epsilon = fields.number("rms_norm_eps", kEpsilon);
  const double scalar = fields.number("query_pre_attn_scalar", 256);
  ZERO_CHECK(scalar > 0, "{}: found {}, expected more than 0",
             fields.place("query_pre_attn_scalar"), scalar);
  if (scalar != static_cast<double>(d.head_width)) d.score_scale = 1 / std::sqrt(scalar);
  if (!fields.flag("tie_word_embeddings", true)) d.head = Head::separate;
  window_from(fields, d);
  rotary_from(fields, d);
  complete(d);
  constexpr const char* kGelu = "gelu_pytorch_tanh";
  fields.only("hidden_activation", kGelu, "the MLP is GeGLU, of the tanh form");
  fields.only("hidden_act", kGelu, "the MLP is GeGLU, of the tanh form");
  fields.only("attention_bias", false, "there are no biases");
  for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    fields.only(cap, nullptr, "nothing is capped");
  }
  fields.only("use_bidirectional_attention", false, "no position sees a later one");
  fields.text("cache_implementation", "hybrid");  // which tensors hold keys: no value depends on it
  return d;
}

/// Scores are multiplied by 1 / sqrt(it). transformers 5 takes whole numbers alone.
json query_scalar(const DecoderShape& d) {
  if (d.score_scale == 0) return d.head_width;
  const double scalar = 1 / (d.score_scale * d.score_scale);
  const double whole = std::round(scalar);
  if (std::abs(scalar - whole) > 1e-12 * whole) return scalar;
  return static_cast<std::int64_t>(whole);
}

json to_hf(const DecoderShape& d) {
  json tree = kLlama.to_hf(d);
  for (const char* field : {"hidden_act", "use_sliding_window", "max_window_layers"}) {
    tree.erase(field);
  }
  tree.update(json{{"architectures", {kClasses[0].architecture}},
                   {"model_type", kClasses[0].model_type},
                   {"query_pre_attn_scalar", query_scalar(d)},
                   {"layer_types", layer_types_to(d)},
                   {"hidden_activation", "gelu_pytorch_tanh"},
                   {"attn_logit_softcapping", nullptr},
                   {"final_logit_softcapping", nullptr}});
  if (d.local_rotary) tree["rope_local_base_freq"] = d.local_rotary->theta;
  if (d.rotary->linear_factor != 1) {
    tree["rope_scaling"] = {{"rope_type", "linear"}, {"factor", d.rotary->linear_factor}};
  }
  return tree;
}

NameMap tensor_names(const DecoderShape& d) {
  NameMap map = kLlama.file_names(d);
  map.family = kGemma3.name;
  return map;
}

}  // namespace

constinit const Family kGemma3{
    .name = "gemma3",
    .hf_classes = kClasses,
    .keys = kKeys,
    .published = {},
    .tensors =
        {.tokens = "model.embed_tokens.weight",
         .positions = {},
         .block_prefix = "model.layers.",
         .block_tensors = {{BlockSlot::norm1_weight, "input_layernorm.weight"},
                           {BlockSlot::qkv_weight, "self_attn.qkv_proj.weight"},
                           {BlockSlot::query_norm_weight, "self_attn.q_norm.weight"},
                           {BlockSlot::key_norm_weight, "self_attn.k_norm.weight"},
                           {BlockSlot::projection_weight, "self_attn.o_proj.weight"},
                           {BlockSlot::projection_norm_weight, "post_attention_layernorm.weight"},
                           {BlockSlot::norm2_weight, "pre_feedforward_layernorm.weight"},
                           {BlockSlot::hidden_weight, "mlp.gate_up_proj.weight"},
                           {BlockSlot::output_weight, "mlp.down_proj.weight"},
                           {BlockSlot::output_norm_weight, "post_feedforward_layernorm.weight"}},
         .norm_unit = "model.norm",
         .head = "lm_head.weight"},
    .file_names = tensor_names,
    .from_hf = from_hf,
    .from_section = from_section,
    .to_hf = to_hf,
    .to_section = to_section};

}  // namespace zero
