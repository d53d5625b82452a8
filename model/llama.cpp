// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/llama.h"

#include <cmath>
#include <string_view>

#include "base/error.h"

namespace zero {
namespace {

void check_field(std::string_view field, std::int64_t value) {
  // Products of two sizes must fit what token ids and matrix libraries count with.
  constexpr std::int64_t kLargest = 1 << 24;
  ZERO_CHECK(value >= 1 && value <= kLargest, "model.{} is {}, expected 1 to {}", field, value,
             kLargest);
}

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
  d.norm = DecoderShape::Norm::rms;
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

void LlamaConfig::validate() const {
  check_field("layers", layers);
  check_field("width", width);
  check_field("heads", heads);
  check_field("kv_heads", kv_heads);
  check_field("intermediate", intermediate);
  check_field("context", context);
  check_field("vocabulary", vocabulary);
  ZERO_CHECK(heads % kv_heads == 0, "model.heads is {}, expected a multiple of model.kv_heads = {}",
             heads, kv_heads);
  ZERO_CHECK(head_width != 0 || width % heads == 0,
             "model.width is {}, expected a multiple of model.heads = {}, or a model.head_width of "
             "its own",
             width, heads);
  ZERO_CHECK(head_elements() >= 2 && head_elements() % 2 == 0,
             "model.head_width is {}, expected an even number: rotary embeddings turn pairs",
             head_elements());
  ZERO_CHECK(std::isfinite(norm_epsilon) && norm_epsilon > 0,
             "model.norm_epsilon is {}, expected more than 0", norm_epsilon);
  rotary.validate();
}

std::int64_t LlamaConfig::parameter_count() const {
  const std::int64_t queries = heads * head_elements();
  const std::int64_t qkv = queries + 2 * kv_heads * head_elements();
  const std::int64_t attention =
      qkv * width + queries * width + (qkv_bias == QkvBias::present ? qkv : 0);
  const std::int64_t tables = (head == Head::tied ? 1 : 2) * vocabulary * width;
  return tables + layers * (attention + 3 * intermediate * width + 2 * width) + width;
}

Llama::Llama(Engine& engine, const LlamaConfig& config, BatchShape shape, OpListener* listener,
             const TensorOptions& tensor)
    : Decoder(engine, decoder_of(config), shape, listener, tensor), config_(config) {}

}  // namespace zero
