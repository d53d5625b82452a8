// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf/config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "architecture/hf_fields.h"
#include "base/error.h"

namespace zero {
namespace {

using nlohmann::json;

// What no pass depends on. How a model was made and is stored:
constexpr std::string_view kAbout[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_attn_implementation_internal",
    "_commit_hash",
    "_experts_implementation",
    "_flash_attn_2_enabled",
    "_hf_peft_config_loaded",
    "_name_or_path",
    "_num_labels",
    "_pre_quantization_dtype",
    "_rope_scaling_validation",
    "attn_implementation",
    "dtype",
    "is_llama_config",
    "model_max_length",
    "model_type",
    "n_ctx",
    "n_special",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "predict_special_tokens",
    "pretraining_tp",
    "reorder_and_upcast_attn",
    "return_dict",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "use_flash_attention_2",
};
// How it was or will be trained, and what heads of other tasks are made of:
constexpr std::string_view kTraining[] = {
    "attention_dropout",
    "attn_pdrop",
    "classifier_dropout",
    "embd_pdrop",
    "finetuning_task",
    "gradient_checkpointing",
    "hidden_dropout",
    "id2label",
    "initializer_range",
    "is_decoder",
    "label2id",
    "neftune_noise_alpha",
    "num_labels",
    "problem_type",
    "resid_pdrop",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "tie_encoder_decoder",
};
// How text is generated:
constexpr std::string_view kGenerating[] = {
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "cls_token_id",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "mask_token_id",
    "max_length",
    "max_new_tokens",
    "max_sequence_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_scores",
    "pad_token_id",
    "prefix",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "top_k",
    "top_p",
    "typical_p",
    "unk_token_id",
};

enum class Architecture : std::uint8_t { gpt2, llama, mistral, qwen2 };

struct Known {
  Architecture architecture;
  const char* name;        // in "architectures"
  const char* model_type;  // used if "architectures" is absent
};
constexpr std::array<Known, 5> kKnown{{{Architecture::gpt2, "GPT2LMHeadModel", "gpt2"},
                                       {Architecture::llama, "LlamaForCausalLM", "llama"},
                                       {Architecture::mistral, "MistralForCausalLM", "mistral"},
                                       {Architecture::qwen2, "Qwen2ForCausalLM", "qwen2"},
                                       // As the first conversions of Llama called it.
                                       {Architecture::llama, "LLaMAForCausalLM", "llama"}}};

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
  ZERO_CHECK(
      activation == "gelu_new" || activation == "gelu_pytorch_tanh" || activation == "gelu_fast",
      "{}: found \"{}\", expected \"gelu_new\"", fields.place("activation_function"), activation);
  fields.only("layer_norm_epsilon", 1e-5, "it is fixed in the norm");
  fields.only("tie_word_embeddings", true, "head and token embedding are one parameter");
  fields.only("scale_attn_weights", true, "scores are divided by the root of the head's width");
  fields.only("scale_attn_by_inverse_layer_idx", false, "scores of all layers have one scale");
  return config;
}

/// Turns of a type that changes no position before `context`, the model's.
void check_unscaled(HfFields& scaling, const std::string& type, std::int64_t context) {
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

RotaryAngles rotary_from(HfFields& fields, std::int64_t context) {
  const bool version5 = fields.has("rope_parameters");
  HfFields scaling = fields.object(version5 ? "rope_parameters" : "rope_scaling");
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

/// Whether a layer's attention slides over the last positions only.
bool any_window(HfFields& fields, Architecture architecture, std::int64_t layers) {
  bool listed = false;  // of a layer
  const json& types = fields.raw("layer_types");
  for (const json& type : types) {
    ZERO_CHECK(type == "full_attention" || type == "sliding_attention",
               "{}: found {}, expected \"full_attention\" or \"sliding_attention\"",
               fields.place("layer_types"), type.dump());
    listed = listed || type == "sliding_attention";
  }
  const bool used = fields.flag("use_sliding_window", false);
  const std::int64_t full = fields.integer("max_window_layers", 28);  // transformers' default
  if (architecture == Architecture::mistral) return true;
  if (architecture != Architecture::qwen2) return listed;
  return types.empty() ? used && full < layers : listed;
}

/// The positions that a sequence may have: as many as its model knows, and no more than a sliding
/// window, within which attention sees all earlier positions, as it does here.
std::int64_t context_from(HfFields& fields, Architecture architecture, std::int64_t layers) {
  // Llama's first files lack the field: transformers' default.
  const std::int64_t positions = architecture == Architecture::llama
                                     ? fields.integer("max_position_embeddings", 2048)
                                     : fields.integer("max_position_embeddings");
  // transformers' default where the field is absent; null is no window.
  const std::int64_t absent = fields.lists("sliding_window") ? positions : 4096;
  const std::int64_t window = fields.integer("sliding_window", absent);
  if (!any_window(fields, architecture, layers)) return positions;
  ZERO_CHECK(window >= 1, "{}: found {}, expected null or at least 1",
             fields.place("sliding_window"), window);
  return std::min(positions, window);
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
  config.context = context_from(fields, architecture, config.layers);
  config.norm_epsilon = fields.number("rms_norm_eps", 1e-6);
  config.rotary = rotary_from(fields, fields.integer("max_position_embeddings", 2048));
  if (fields.flag("tie_word_embeddings", false)) config.head = LlamaConfig::Head::tied;
  if (architecture == Architecture::qwen2) config.qkv_bias = LlamaConfig::QkvBias::present;
  const std::string activation = fields.text("hidden_act", "silu");
  ZERO_CHECK(activation == "silu" || activation == "swish",
             "{}: found \"{}\", expected \"silu\": the MLP is SwiGLU", fields.place("hidden_act"),
             activation);
  fields.only("attention_bias", false, "biases are those of Qwen2ForCausalLM on q, k, v or none");
  fields.only("mlp_bias", false, "the MLP has no biases");
  return config;
}

constexpr const char* kThreshold = "llm_int8_threshold";

[[noreturn]] void refuse_method(HfFields& fields, HfFields& section) {
  const bool bits8 = section.flag("load_in_8bit", false);
  const bool bits4 = section.flag("load_in_4bit", false);
  const std::string method =
      section.text("quant_method", bits8 || bits4 ? "bitsandbytes" : "no quant_method");
  fail(
      "{}: found {}{}, expected codes that zero_generate --save-quantized wrote (quant_method "
      "\"{}\"): take the folder from which these were made, and --weights int8, nf4 or q4{}{}",
      fields.place(kHfQuantization), method,
      bits8   ? " in 8 bits"
      : bits4 ? " in 4 bits"
              : "",
      kHfOurMethod, section.has(kThreshold) && !bits4 ? "; " : "",
      section.has(kThreshold) && !bits4 ? kNoThreshold : "");
}

/// The format of codes; empty if there are none.
std::string codes_from(HfFields& fields) {
  if (!fields.has(kHfQuantization)) return "";
  HfFields section = fields.object(kHfQuantization);
  if (section.raw("quant_method") != kHfOurMethod) refuse_method(fields, section);
  ZERO_CHECK(!section.has(kThreshold), "{}: found {}, expected none: {}", section.place(kThreshold),
             section.raw(kThreshold).dump(), kNoThreshold);
  const std::int64_t version = section.integer("version");
  ZERO_CHECK(version == 1, "{}: found {}, expected 1: take a later zero_generate",
             section.place("version"), version);
  std::string codes = section.text("format");
  section.finish({});
  return codes;
}

ModelConfig plain_config(const HfModel& model, const std::string& path) {
  ZERO_CHECK(model.codes.empty(),
             "{}: {}: found codes of {}, expected plain weights: only zero_generate reads codes; "
             "take the folder from which these were made",
             path, kHfQuantization, model.codes);
  return model.config;
}

}  // namespace

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
  fields.only("pruned_heads", json::object(), "every head is computed");
  fields.only("add_cross_attention", false, "there is one text");
  fields.only("is_encoder_decoder", false, "there is no encoder");
  std::string codes = codes_from(fields);
  std::vector<std::string_view> passed_over(std::begin(kAbout), std::end(kAbout));
  passed_over.insert(passed_over.end(), std::begin(kTraining), std::end(kTraining));
  passed_over.insert(passed_over.end(), std::begin(kGenerating), std::end(kGenerating));
  fields.finish(passed_over);
  return {config, std::move(codes)};
}

ModelConfig parse_hf_config(const std::string& path, std::string_view text) {
  return plain_config(parse_hf_model(path, text), path);
}

}  // namespace zero
