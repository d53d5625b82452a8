// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_tree.h"
#include "checkpoint/hf/config.h"

namespace zero {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

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

/// The fields of a source; weights beside them are in `dtype`, a name of torch's.
ordered_json carried(std::string_view text, std::string_view dtype) {
  ordered_json tree = *parse_ordered_tree(text);
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (tree.contains(key)) tree[key] = dtype;
  }
  return tree;
}

}  // namespace

std::string hf_config_text(const ModelConfig& config) {
  return std::visit([](const auto& family) { return to_json(family); }, config).dump(2) + "\n";
}

std::string carried_config_text(const std::string& path, std::string_view text) {
  parse_hf_config(path, text);
  constexpr const char* kType = "float32";
  ordered_json tree = carried(text, kType);
  if (!tree.contains("torch_dtype") && !tree.contains("dtype")) tree["torch_dtype"] = kType;
  return tree.dump(2) + "\n";
}

std::string quantized_config_text(const std::string& path, std::string_view text,
                                  std::string_view codes, std::string_view dtype) {
  parse_hf_config(path, text);
  ordered_json tree = carried(text, dtype);
  tree[kHfQuantization] = {{"quant_method", kHfOurMethod}, {"format", codes}, {"version", 1}};
  return tree.dump(2) + "\n";
}

}  // namespace zero
