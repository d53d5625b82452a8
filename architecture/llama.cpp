// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Llama's family (Touvron et al. 2023; Llama 3, Mistral, Ministral, Qwen2, Qwen3): RMS norms,
// rotary embeddings, SwiGLU, grouped-query attention, in some layers or all of them over a sliding
// window, no biases except optional ones of q, k, v (Qwen2), or norms of the heads of q and k
// (Qwen3). Two matrices are one here and several in files, which have the rows of their parts one
// after another, for one product: q_proj, k_proj and v_proj are "self_attn.qkv_proj", gate_proj and
// up_proj "mlp.gate_up_proj".
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "architecture/family.h"
#include "architecture/local_layers.h"
#include "base/error.h"

namespace zero {

extern const Family kLlama;

namespace {

using nlohmann::json;
using Biases = DecoderShape::Biases;
using Head = DecoderShape::Head;

constexpr std::array<Family::HfClass, 6> kClasses{{{"LlamaForCausalLM", "llama"},
                                                   {"MistralForCausalLM", "mistral"},
                                                   {"Qwen2ForCausalLM", "qwen2"},
                                                   {"Qwen3ForCausalLM", "qwen3"},
                                                   {"MinistralForCausalLM", "ministral"},
                                                   // As the first conversions of Llama called it.
                                                   {"LLaMAForCausalLM", "llama"}}};
constexpr std::array<std::string_view, 17> kKeys{
    "name",         "layers",   "width",        "heads",        "context",     "vocabulary",
    "intermediate", "kv_heads", "head_width",   "norm_epsilon", "head",        "qkv_bias",
    "head_norms",   "window",   "local_layers", "rope_theta",   "rope_scaling"};

// Touvron et al. 2023, table 2; Llama Team 2024 (arXiv 2407.21783), table 3.
constexpr std::array<std::string_view, 6> kNames{"llama-7b",  "llama-13b",    "llama-33b",
                                                 "llama-65b", "llama-3.1-8b", "llama-3.1-70b"};
struct Sizes {
  std::int64_t layers, width, heads, kv_heads, intermediate;
  double epsilon;
  bool third;  // of Llama 3.1: its vocabulary, context and angles
};
constexpr std::array<Sizes, kNames.size()> kSizes{{{32, 4096, 32, 32, 11008, 1e-6, false},
                                                   {40, 5120, 40, 40, 13824, 1e-6, false},
                                                   {60, 6656, 52, 52, 17920, 1e-6, false},
                                                   {80, 8192, 64, 64, 22016, 1e-5, false},
                                                   {32, 4096, 32, 8, 14336, 1e-5, true},
                                                   {80, 8192, 64, 8, 28672, 1e-5, true}}};

DecoderShape base() {
  DecoderShape d;
  d.family = &kLlama;
  d.norm = NormKind::rms;
  d.activation = DecoderShape::Activation::swiglu;
  d.head = Head::separate;
  d.biases = Biases::none;
  d.layout = WeightLayout::out_in;
  d.rotary.emplace();
  return d;
}

std::optional<RotaryScaling> scaling_from(JsonFields scaling) {
  constexpr const char* kLength = "original_max_position_embeddings";
  if (!scaling.has("factor")) {
    for (const char* key : {"low_freq_factor", "high_freq_factor", kLength}) {
      ZERO_CHECK(!scaling.has(key),
                 "{} is given without model.rope_scaling.factor; give both or neither",
                 scaling.place(key));
    }
    return std::nullopt;
  }
  ZERO_CHECK(scaling.has(kLength),
             "{} is missing; give the context that the model had before it was stretched",
             scaling.place(kLength));
  const RotaryScaling usual;
  return RotaryScaling{.factor = scaling.number("factor"),
                       .low_frequency = scaling.number("low_freq_factor", usual.low_frequency),
                       .high_frequency = scaling.number("high_freq_factor", usual.high_frequency),
                       .original_context = scaling.integer(kLength)};
}

/// Sets the sizes of a published model.
void take_published(DecoderShape& d, const std::string& name, const std::string& place) {
  const auto found = std::ranges::find(kNames, name);
  ZERO_CHECK(found != kNames.end(), "{}: there is no model \"{}\"", place, name);
  const Sizes& sizes = kSizes[static_cast<std::size_t>(found - kNames.begin())];
  d.layers = sizes.layers;
  d.width = sizes.width;
  d.heads = sizes.heads;
  d.kv_heads = sizes.kv_heads;
  d.intermediate = sizes.intermediate;
  d.epsilon = sizes.epsilon;
  d.vocabulary = sizes.third ? 128256 : 32000;
  d.context = sizes.third ? 131072 : 2048;
  if (!sizes.third) return;
  d.rotary->theta = 500000;
  d.rotary->scaling.emplace();
}

DecoderShape from_section(JsonFields& section) {
  DecoderShape d = base();
  const bool named = section.has("name");
  if (named) take_published(d, section.text("name"), section.place("name"));
  const std::pair<const char*, std::int64_t*> sizes[] = {
      {"layers", &d.layers},   {"width", &d.width},           {"heads", &d.heads},
      {"context", &d.context}, {"vocabulary", &d.vocabulary}, {"intermediate", &d.intermediate}};
  for (const auto& [key, size] : sizes) {
    ZERO_CHECK(named || section.has(key),
               "{} is missing: a model of the family {} has no default sizes; give it, or a "
               "Hugging Face folder as model.hf",
               section.place(key), section.text("family", std::string(kLlama.name)));
    *size = section.integer(key, *size);
  }
  d.kv_heads = section.integer("kv_heads", named ? d.kv_heads : d.heads);
  d.divide_width();
  d.head_width = section.integer("head_width", d.head_width);
  d.epsilon = section.number("norm_epsilon", d.epsilon);
  if (section.text("head", "separate") == "tied") d.head = Head::tied;
  if (section.flag("qkv_bias", false)) d.biases = Biases::qkv;
  d.head_norms = section.flag("head_norms", false);
  ZERO_CHECK(!d.head_norms || d.biases == Biases::none,
             "{}: found true beside {}, expected one of them: no model of this family has both",
             section.place("head_norms"), section.place("qkv_bias"));
  d.rotary->theta = section.number("rope_theta", d.rotary->theta);
  if (!named || section.has("rope_scaling")) {
    d.rotary->scaling = scaling_from(section.object("rope_scaling"));
  }
  window_from_section(section, d);
  return d;
}

// In the words of config.json, which are also those of our section.
json scaling_to(const RotaryScaling& scaling) {
  return {{"factor", scaling.factor},
          {"low_freq_factor", scaling.low_frequency},
          {"high_freq_factor", scaling.high_frequency},
          {"original_max_position_embeddings", scaling.original_context}};
}

json to_section(const DecoderShape& d) {
  json section{{"layers", d.layers},
               {"width", d.width},
               {"heads", d.heads},
               {"context", d.context},
               {"vocabulary", d.vocabulary},
               {"intermediate", d.intermediate},
               {"kv_heads", d.kv_heads},
               {"head_width", d.head_width},
               {"norm_epsilon", d.epsilon},
               {"head", d.head == Head::tied ? "tied" : "separate"},
               {"qkv_bias", d.biases == Biases::qkv},
               {"rope_theta", d.rotary->theta}};
  if (d.head_norms) section["head_norms"] = true;
  if (d.rotary->scaling) section["rope_scaling"] = scaling_to(*d.rotary->scaling);
  window_to_section(d, section);
  return section;
}

/// Turns of a type that changes no position before `context`, the model's.
void check_unscaled(JsonFields& scaling, const std::string& type, std::int64_t context) {
  constexpr const char* kWhy = "angles are stretched as by Llama 3, or not at all";
  ZERO_CHECK(type == "default" || type == "linear" || type == "dynamic" || type == "yarn",
             "{}: found \"{}\", expected \"default\" or \"llama3\"", scaling.place("rope_type"),
             type);
  if (type == "default") return;
  // "dynamic" stretches sequences longer than the context alone.
  const double factor = scaling.number("factor", 1.0);
  ZERO_CHECK(factor == 1.0 || type == "dynamic",
             "{}: found {} with rope_type \"{}\", expected 1, or rope_type \"default\" or "
             "\"llama3\": {}; for sequences of the context before it was stretched, take the "
             "stretching out and set max_position_embeddings to that context, if the model's "
             "authors say that this is its short form",
             scaling.place("factor"), factor, type, kWhy);
  scaling.only("original_max_position_embeddings", context, kWhy);
  if (type != "yarn") return;
  scaling.only("attention_factor", 1.0, kWhy);
  for (const char* bound : {"beta_fast", "beta_slow"}) scaling.number(bound, 1.0);
}

RotaryAngles rotary_from(JsonFields& fields, std::int64_t context) {
  const bool version5 = fields.has("rope_parameters");
  JsonFields scaling = fields.object(version5 ? "rope_parameters" : "rope_scaling");
  RotaryAngles angles;
  angles.theta = fields.number("rope_theta", 10000.0);
  angles.theta = scaling.number("rope_theta", angles.theta);
  const std::string older = scaling.text("type", "default");
  const std::string type = scaling.text("rope_type", older);
  if (type == "llama3") {
    angles.scaling = {.factor = scaling.number("factor"),
                      .low_frequency = scaling.number("low_freq_factor"),
                      .high_frequency = scaling.number("high_freq_factor"),
                      .original_context = scaling.integer("original_max_position_embeddings")};
  } else {
    check_unscaled(scaling, type, context);
  }
  scaling.only("partial_rotary_factor", 1.0, "all elements of a head turn");
  fields.only("partial_rotary_factor", 1.0, "all elements of a head turn");
  fields.only("rope_interleaved", false, "the halves of a head turn together");
  scaling.finish({});
  return angles;
}

/// As transformers' class has it. A window longer than the context is kept: it changes nothing.
void window_from(JsonFields& fields, std::string_view model_type, DecoderShape& d) {
  const std::vector<bool> types = layer_types_from(fields, d.layers);
  // transformers' defaults where the fields are absent; a null window is none.
  const std::int64_t absent = fields.lists("sliding_window") ? 0 : 4096;
  const std::int64_t window = fields.integer("sliding_window", absent);
  const bool used = fields.flag("use_sliding_window", false);
  const std::int64_t full = std::max<std::int64_t>(fields.integer("max_window_layers", 28), 0);
  if (model_type == "llama") {
    ZERO_CHECK(std::ranges::count(types, true) == 0,
               "{}: found \"sliding_attention\", expected \"full_attention\": LlamaForCausalLM "
               "has no window; MinistralForCausalLM and Qwen2ForCausalLM have",
               fields.place("layer_types"));
    return;
  }
  const auto slide = [&](std::vector<bool> local) {
    if (!local.empty() && std::ranges::count(local, true) == 0) return;
    ZERO_CHECK(window >= 1 || !fields.has("sliding_window"),
               "{}: found {}, expected null or at least 1", fields.place("sliding_window"), window);
    set_window(d, window, std::move(local));
  };
  // transformers makes a mistral with layer_types a ministral.
  const bool mistral = model_type == "mistral" || model_type == "ministral";
  if (mistral || !types.empty()) return slide(types);
  if (!used || full >= d.layers || d.layers > kLargestSize) return;
  std::vector<bool> local(static_cast<std::size_t>(d.layers), true);
  std::fill_n(local.begin(), full, false);
  slide(std::move(local));
}

DecoderShape from_hf(JsonFields& fields, std::string_view model_type) {
  DecoderShape d = base();
  d.layers = fields.integer("num_hidden_layers");
  d.width = fields.integer("hidden_size");
  d.heads = fields.integer("num_attention_heads");
  // Llama's first models lack the field; the other families always have it.
  d.kv_heads = model_type == "llama" ? fields.integer("num_key_value_heads", d.heads)
                                     : fields.integer("num_key_value_heads");
  d.head_width = fields.integer("head_dim", model_type == "qwen3" ? 128 : 0);
  if (d.head_width == 0) d.divide_width();
  d.intermediate = fields.integer("intermediate_size");
  d.vocabulary = fields.integer("vocab_size");
  // Llama's first files lack the field: transformers' default.
  d.context = model_type == "llama" ? fields.integer("max_position_embeddings", 2048)
                                    : fields.integer("max_position_embeddings");
  window_from(fields, model_type, d);
  d.epsilon = fields.number("rms_norm_eps", 1e-6);
  d.rotary = rotary_from(fields, d.context);
  if (fields.flag("tie_word_embeddings", false)) d.head = Head::tied;
  if (model_type == "qwen2") d.biases = Biases::qkv;
  d.head_norms = model_type == "qwen3";
  const std::string activation = fields.text("hidden_act", "silu");
  ZERO_CHECK(activation == "silu" || activation == "swish",
             "{}: found \"{}\", expected \"silu\": the MLP is SwiGLU", fields.place("hidden_act"),
             activation);
  fields.only("attention_bias", false, "biases are those of Qwen2ForCausalLM on q, k, v or none");
  fields.only("mlp_bias", false, "the MLP has no biases");
  return d;
}

/// The class of transformers that computes the shape.
const Family::HfClass& class_of(const DecoderShape& d) {
  if (d.biases == Biases::qkv) return kClasses[2];
  if (d.head_norms) return kClasses[3];
  if (d.window == 0) return kClasses[0];
  return kClasses[d.local_layers.empty() ? 1 : 4];
}

void window_to(const DecoderShape& d, json& tree) {
  const bool qwen = d.biases == Biases::qkv || d.head_norms;
  if (qwen) tree["use_sliding_window"] = d.window > 0;
  if (d.window == 0) return;
  tree["sliding_window"] = d.window;
  if (!qwen && d.local_layers.empty()) return;
  tree["layer_types"] = layer_types_to(d);
  if (!qwen) return;
  const auto first = std::ranges::find(d.local_layers, true);
  tree["max_window_layers"] = d.local_layers.empty() ? 0 : first - d.local_layers.begin();
}

// In the field names of transformers 4, which version 5 also reads.
json to_hf(const DecoderShape& d) {
  const Family::HfClass& of = class_of(d);
  json tree{{"architectures", {of.architecture}},
            {"model_type", of.model_type},
            {"num_hidden_layers", d.layers},
            {"hidden_size", d.width},
            {"num_attention_heads", d.heads},
            {"num_key_value_heads", d.kv_heads},
            {"head_dim", d.head_width},
            {"intermediate_size", d.intermediate},
            {"vocab_size", d.vocabulary},
            {"max_position_embeddings", d.context},
            {"rms_norm_eps", d.epsilon},
            {"rope_theta", d.rotary->theta},
            {"rope_scaling", nullptr},
            {"hidden_act", "silu"},
            {"tie_word_embeddings", d.head == Head::tied},
            {"attention_dropout", 0.0},
            {"torch_dtype", "float32"}};
  if (d.rotary->scaling) {
    tree["rope_scaling"] = scaling_to(*d.rotary->scaling);
    tree["rope_scaling"]["rope_type"] = "llama3";
  }
  if (of.model_type == "llama") tree["mlp_bias"] = false;
  if (of.model_type == "llama" || d.head_norms) tree["attention_bias"] = false;
  window_to(d, tree);
  return tree;
}

// With or without the prefix.
NameMap tensor_names(const DecoderShape& d) {
  const std::int64_t keys = d.kv_heads * d.head_width;
  NameMap map{
      .family = "llama",
      .prefix = "model.",
      // Tables of angles, which follow from config.json.
      .ignored_ends = {"rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached"},
      .splits = {{"qkv_proj", {{"q_proj", d.attended_width()}, {"k_proj", keys}, {"v_proj", keys}}},
                 {"gate_up_proj", {{"gate_proj", d.intermediate}, {"up_proj", d.intermediate}}}}};
  if (d.head == Head::tied) map.aliases = {{"lm_head.weight", "embed_tokens.weight"}};
  return map;
}

}  // namespace

constinit const Family kLlama{
    .name = "llama",
    .hf_classes = kClasses,
    .keys = kKeys,
    .published = kNames,
    .tensors = {.tokens = "model.embed_tokens.weight",
                .positions = {},
                .block_prefix = "model.layers.",
                .block_tensors = {{BlockSlot::norm1_weight, "input_layernorm.weight"},
                                  {BlockSlot::qkv_weight, "self_attn.qkv_proj.weight"},
                                  {BlockSlot::qkv_bias, "self_attn.qkv_proj.bias"},
                                  {BlockSlot::query_norm_weight, "self_attn.q_norm.weight"},
                                  {BlockSlot::key_norm_weight, "self_attn.k_norm.weight"},
                                  {BlockSlot::projection_weight, "self_attn.o_proj.weight"},
                                  {BlockSlot::norm2_weight, "post_attention_layernorm.weight"},
                                  {BlockSlot::hidden_weight, "mlp.gate_up_proj.weight"},
                                  {BlockSlot::output_weight, "mlp.down_proj.weight"}},
                .norm_unit = "model.norm",
                .head = "lm_head.weight"},
    .file_names = tensor_names,
    .from_hf = from_hf,
    .from_section = from_section,
    .to_hf = to_hf,
    .to_section = to_section};

}  // namespace zero
