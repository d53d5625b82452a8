// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf/config.h"

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "checkpoint/hf/fields.h"
#include "checkpoint/json_tree.h"
#include "checkpoint/text_file.h"

namespace zero {
namespace {

using nlohmann::json;

// Fields about how a model was made, is stored, or generates text.
constexpr std::string_view kPassedOver[] = {"_name_or_path",
                                            "architectures",
                                            "model_type",
                                            "transformers_version",
                                            "torch_dtype",
                                            "dtype",
                                            "bos_token_id",
                                            "eos_token_id",
                                            "pad_token_id",
                                            "use_cache",
                                            "initializer_range",
                                            "max_window_layers",
                                            "sliding_window",
                                            "attention_dropout",
                                            "resid_pdrop",
                                            "embd_pdrop",
                                            "attn_pdrop",
                                            "n_ctx",
                                            "task_specific_params",
                                            "summary_activation",
                                            "summary_first_dropout",
                                            "summary_proj_to_labels",
                                            "summary_type",
                                            "summary_use_proj",
                                            "return_dict",
                                            "id2label",
                                            "label2id",
                                            "chunk_size_feed_forward",
                                            "_attn_implementation_autoset",
                                            "is_llama_config",
                                            "tokenizer_class"};

enum class Architecture : std::uint8_t { gpt2, llama, mistral, qwen2 };

struct Known {
  Architecture architecture;
  const char* name;        // in "architectures"
  const char* model_type;  // used if "architectures" is absent
};
constexpr std::array<Known, 4> kKnown{{{Architecture::gpt2, "GPT2LMHeadModel", "gpt2"},
                                       {Architecture::llama, "LlamaForCausalLM", "llama"},
                                       {Architecture::mistral, "MistralForCausalLM", "mistral"},
                                       {Architecture::qwen2, "Qwen2ForCausalLM", "qwen2"}}};

Architecture architecture_of(HfFields& fields) {
  const json list = fields.raw("architectures");
  const bool listed = list.is_array() && list.size() == 1;
  const json found = listed ? list[0] : fields.raw("model_type");
  for (const Known& known : kKnown) {
    if (found == (listed ? known.name : known.model_type)) return known.architecture;
  }
  std::string names;
  for (const Known& known : kKnown) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", known.name);
  }
  fail("{}: found {}, expected one of {}", fields.place("architectures"),
       list.is_null() ? found.dump() : list.dump(), names);
}

Gpt2Config gpt2_from(HfFields& fields) {
  Gpt2Config config{.layers = fields.integer("n_layer"),
                    .width = fields.integer("n_embd"),
                    .heads = fields.integer("n_head"),
                    .context = fields.integer("n_positions"),
                    .vocabulary = fields.integer("vocab_size")};
  const std::string activation = fields.text("activation_function", "gelu_new");
  ZERO_CHECK(activation == "gelu_new" || activation == "gelu_pytorch_tanh",
             "{}: found \"{}\", expected \"gelu_new\"", fields.place("activation_function"),
             activation);
  fields.only("layer_norm_epsilon", 1e-5, "it is fixed in the norm");
  fields.only("tie_word_embeddings", true, "head and token embedding are one parameter");
  fields.only("scale_attn_weights", true, "scores are divided by the root of the head's width");
  return config;
}

RotaryAngles rotary_from(HfFields& fields) {
  const bool version5 = fields.has("rope_parameters");
  HfFields scaling = fields.object(version5 ? "rope_parameters" : "rope_scaling");
  RotaryAngles angles;
  angles.theta = fields.number("rope_theta", 10000.0);
  angles.theta = scaling.number("rope_theta", angles.theta);
  const std::string older = scaling.text("type", "default");
  const std::string type = scaling.text("rope_type", older);
  ZERO_CHECK(type == "default" || type == "llama3",
             "{}: found \"{}\", expected \"default\" or \"llama3\"", scaling.place("rope_type"),
             type);
  if (type == "llama3") {
    angles.scaling = {.factor = scaling.number("factor"),
                      .low_frequency = scaling.number("low_freq_factor"),
                      .high_frequency = scaling.number("high_freq_factor"),
                      .original_context = scaling.integer("original_max_position_embeddings")};
  }
  scaling.only("partial_rotary_factor", 1.0, "all elements of a head turn");
  fields.only("partial_rotary_factor", 1.0, "all elements of a head turn");
  scaling.finish({});
  return angles;
}

// Every layer sees all earlier positions.
void check_windows(HfFields& fields, Architecture architecture, std::int64_t context) {
  constexpr const char* kWhy = "attention here sees all earlier positions";
  if (architecture == Architecture::mistral) {
    const std::int64_t window = fields.integer("sliding_window", context);
    ZERO_CHECK(window >= context,
               "{}: found {}, expected null or at least max_position_embeddings = {}: {}; for "
               "sequences of at most {} set it to null and max_position_embeddings to {}",
               fields.place("sliding_window"), window, context, kWhy, window, window);
  }
  fields.only("use_sliding_window", false, kWhy);
  for (const json& type : fields.raw("layer_types")) {
    ZERO_CHECK(type == "full_attention", "{}: found {}, expected \"full_attention\": {}",
               fields.place("layer_types"), type.dump(), kWhy);
  }
}

LlamaConfig llama_from(HfFields& fields, Architecture architecture) {
  LlamaConfig config;
  config.layers = fields.integer("num_hidden_layers");
  config.width = fields.integer("hidden_size");
  config.heads = fields.integer("num_attention_heads");
  // Llama's first models lack the field; the other families always have it.
  config.kv_heads = architecture == Architecture::llama
                        ? fields.integer("num_key_value_heads", config.heads)
                        : fields.integer("num_key_value_heads");
  config.head_width = fields.integer("head_dim", 0);
  config.intermediate = fields.integer("intermediate_size");
  config.vocabulary = fields.integer("vocab_size");
  config.context = fields.integer("max_position_embeddings");
  config.norm_epsilon = fields.number("rms_norm_eps", 1e-6);
  config.rotary = rotary_from(fields);
  if (fields.flag("tie_word_embeddings", false)) config.head = LlamaConfig::Head::tied;
  if (architecture == Architecture::qwen2) config.qkv_bias = LlamaConfig::QkvBias::present;
  fields.only("hidden_act", "silu", "the MLP is SwiGLU");
  fields.only("attention_bias", false, "biases are those of Qwen2ForCausalLM on q, k, v or none");
  fields.only("mlp_bias", false, "the MLP has no biases");
  fields.only("pretraining_tp", 1, "products are whole");
  check_windows(fields, architecture, config.context);
  return config;
}

constexpr const char* kQuantization = "quantization_config";
constexpr const char* kOurMethod = "zero";
constexpr const char* kThreshold = "llm_int8_threshold";

[[noreturn]] void refuse_method(HfFields& fields, HfFields& section) {
  const bool bits8 = section.flag("load_in_8bit", false);
  const bool bits4 = section.flag("load_in_4bit", false);
  const std::string method =
      section.text("quant_method", bits8 || bits4 ? "bitsandbytes" : "no quant_method");
  fail(
      "{}: found {}{}, expected codes that zero_generate --save-quantized wrote (quant_method "
      "\"{}\"): take the folder from which these were made, and --weights int8, nf4 or q4{}{}",
      fields.place(kQuantization), method,
      bits8   ? " in 8 bits"
      : bits4 ? " in 4 bits"
              : "",
      kOurMethod, section.has(kThreshold) && !bits4 ? "; " : "",
      section.has(kThreshold) && !bits4 ? kNoThreshold : "");
}

/// The format of codes; empty if there are none.
std::string codes_from(HfFields& fields) {
  if (!fields.has(kQuantization)) return "";
  HfFields section = fields.object(kQuantization);
  if (section.raw("quant_method") != kOurMethod) refuse_method(fields, section);
  ZERO_CHECK(!section.has(kThreshold), "{}: found {}, expected none: {}", section.place(kThreshold),
             section.raw(kThreshold).dump(), kNoThreshold);
  const std::int64_t version = section.integer("version");
  ZERO_CHECK(version == 1, "{}: found {}, expected 1: take a later zero_generate",
             section.place("version"), version);
  std::string codes = section.text("format");
  section.finish({});
  return codes;
}

json to_json(const Gpt2Config& config) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"n_layer", config.layers},
          {"n_embd", config.width},
          {"n_head", config.heads},
          {"n_positions", config.context},
          {"vocab_size", config.vocabulary},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", 1e-5},
          {"tie_word_embeddings", true},
          {"resid_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0},
          {"torch_dtype", "float32"}};
}

// In the field names of transformers 4, which version 5 also reads.
json to_json(const LlamaConfig& config) {
  const bool bias = config.qkv_bias == LlamaConfig::QkvBias::present;
  json tree{{"architectures", {bias ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}},
            {"model_type", bias ? "qwen2" : "llama"},
            {"num_hidden_layers", config.layers},
            {"hidden_size", config.width},
            {"num_attention_heads", config.heads},
            {"num_key_value_heads", config.kv_heads},
            {"head_dim", config.head_elements()},
            {"intermediate_size", config.intermediate},
            {"vocab_size", config.vocabulary},
            {"max_position_embeddings", config.context},
            {"rms_norm_eps", config.norm_epsilon},
            {"rope_theta", config.rotary.theta},
            {"rope_scaling", nullptr},
            {"hidden_act", "silu"},
            {"tie_word_embeddings", config.head == LlamaConfig::Head::tied},
            {"attention_dropout", 0.0},
            {"torch_dtype", "float32"}};
  if (const auto& scaling = config.rotary.scaling) {
    tree["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", scaling->factor},
                            {"low_freq_factor", scaling->low_frequency},
                            {"high_freq_factor", scaling->high_frequency},
                            {"original_max_position_embeddings", scaling->original_context}};
  }
  if (bias) {
    tree["use_sliding_window"] = false;
  } else {
    tree["attention_bias"] = tree["mlp_bias"] = false;
  }
  return tree;
}

}  // namespace

HfModel read_hf_model(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / "config.json").string();
  std::string text;
  try {
    text = read_text(files::disk(), path);
  } catch (const Error& error) {
    fail("{}: cannot be read; expected the config.json of a Hugging Face model ({})", path,
         error.what());
  }
  return parse_hf_model(path, text);
}

HfModel parse_hf_model(const std::string& path, std::string_view text) {
  HfFields fields = HfFields::parse(path, text);
  const Architecture architecture = architecture_of(fields);
  ModelConfig config;
  if (architecture == Architecture::gpt2) {
    config = gpt2_from(fields);
  } else {
    config = llama_from(fields, architecture);
  }
  try {
    validate(config);
  } catch (const Error& error) {
    fail("{}: {}", path, error.what());
  }
  if (const auto* gpt2 = std::get_if<Gpt2Config>(&config)) {
    fields.only("n_inner", 4 * gpt2->width, "the MLP is four times as wide");
  }
  std::string codes = codes_from(fields);
  fields.finish(kPassedOver);
  return {config, std::move(codes)};
}

namespace {

ModelConfig plain_config(const HfModel& model, const std::string& path) {
  ZERO_CHECK(model.codes.empty(),
             "{}: {}: found codes of {}, expected plain weights: only zero_generate reads codes; "
             "take the folder from which these were made",
             path, kQuantization, model.codes);
  return model.config;
}

}  // namespace

ModelConfig read_hf_config(const std::string& folder) {
  return plain_config(read_hf_model(folder),
                      (std::filesystem::path(folder) / "config.json").string());
}

ModelConfig parse_hf_config(const std::string& path, std::string_view text) {
  return plain_config(parse_hf_model(path, text), path);
}

std::string hf_config_text(const ModelConfig& config) {
  return std::visit([](const auto& family) { return to_json(family); }, config).dump(2) + "\n";
}

std::string quantized_config_text(const std::string& path, std::string_view text,
                                  std::string_view codes, std::string_view dtype) {
  parse_hf_config(path, text);
  nlohmann::ordered_json tree = *parse_ordered_tree(text);
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (tree.contains(key)) tree[key] = dtype;
  }
  tree[kQuantization] = {{"quant_method", kOurMethod}, {"format", codes}, {"version", 1}};
  return tree.dump(2) + "\n";
}

}  // namespace zero
