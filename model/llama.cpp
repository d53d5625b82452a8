// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/llama.h"

namespace zero {
namespace {

DecoderShape decoder_of(const LlamaConfig& config) {
  config.validate();
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
  d.epsilon = static_cast<float>(config.norm_epsilon);
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
  return d;
}

}  // namespace

Llama::Llama(Engine& engine, const LlamaConfig& config, BatchShape shape, OpListener* listener,
             const TensorOptions& tensor)
    : Decoder(engine, decoder_of(config), shape, listener, tensor) {}

}  // namespace zero
