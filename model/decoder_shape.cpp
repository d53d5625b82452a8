// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "architecture/decoder_shape.h"

#include <variant>

#include "model/model_config.h"

namespace zero {

DecoderShape decoder_shape(const Gpt2Config& config) {
  DecoderShape d;
  d.layers = config.layers;
  d.width = config.width;
  d.heads = d.kv_heads = config.heads;
  if (config.heads > 0 && config.width % config.heads == 0) {
    d.head_width = config.width / config.heads;
  }
  d.intermediate = 4 * config.width;
  d.vocabulary = config.vocabulary;
  d.context = config.context;
  d.tokens_name = "wte.weight";
  d.positions_name = "wpe.weight";
  d.block_prefix = "h.";
  d.block_names = {"ln_1.weight",      "ln_1.bias",          "attn.c_attn.weight",
                   "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
                   "ln_2.weight",      "ln_2.bias",          "mlp.c_fc.weight",
                   "mlp.c_fc.bias",    "mlp.c_proj.weight",  "mlp.c_proj.bias"};
  d.norm_unit = "ln_f";
  d.norm_bias = "bias";
  d.validate();
  return d;
}

DecoderShape decoder_shape(const LlamaConfig& config) {
  const bool bias = config.qkv_bias == LlamaConfig::QkvBias::present;
  DecoderShape d;
  d.layers = config.layers;
  d.width = config.width;
  d.heads = config.heads;
  d.kv_heads = config.kv_heads;
  d.head_width = config.head_elements();
  d.intermediate = config.intermediate;
  d.vocabulary = config.vocabulary;
  d.context = config.context;
  d.norm = NormKind::rms;
  d.epsilon = config.norm_epsilon;
  d.activation = DecoderShape::Activation::swiglu;
  d.head = config.head == LlamaConfig::Head::tied ? DecoderShape::Head::tied
                                                  : DecoderShape::Head::separate;
  d.layout = WeightLayout::out_in;
  d.rotary = config.rotary;
  d.tokens_name = "model.embed_tokens.weight";
  d.block_prefix = "model.layers.";
  d.block_names = {"input_layernorm.weight",
                   "",
                   "self_attn.qkv_proj.weight",
                   bias ? "self_attn.qkv_proj.bias" : "",
                   "self_attn.o_proj.weight",
                   "",
                   "post_attention_layernorm.weight",
                   "",
                   "mlp.gate_up_proj.weight",
                   "",
                   "mlp.down_proj.weight",
                   ""};
  d.norm_unit = "model.norm";
  d.head_name = "lm_head.weight";
  d.validate();
  return d;
}

DecoderShape decoder_shape(const ModelConfig& config) {
  return std::visit([](const auto& of) { return decoder_shape(of); }, config);
}

}  // namespace zero
