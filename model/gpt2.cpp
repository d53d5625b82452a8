// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/gpt2.h"

namespace zero {
namespace {

DecoderShape decoder_of(const Gpt2Config& config) {
  config.validate();
  DecoderShape d;
  d.layers = config.layers;
  d.width = config.width;
  d.heads = d.kv_heads = config.heads;
  d.head_width = config.width / config.heads;
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
  return d;
}

}  // namespace

Gpt2::Gpt2(Engine& engine, const Gpt2Config& config, BatchShape shape, OpListener* listener,
           const TensorOptions& tensor)
    : Decoder(engine, decoder_of(config), shape, listener, tensor) {}

}  // namespace zero
