// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "model/model_config.h"

namespace zero {

/// The architecture that FOLDER/config.json describes, as Hugging Face's transformers 4 and 5 write
/// it: GPT2LMHeadModel, LlamaForCausalLM, MistralForCausalLM (without a sliding window),
/// Qwen2ForCausalLM. Dropout is not computed; fields about dropout and about generating text are
/// ignored. Throws zero::Error naming file, field, found and expected if the file lacks a field,
/// has a value that the engine does not compute, or has an unknown field.
ModelConfig read_hf_config(const std::string& folder);
/// Parses the text of such a file; `path` names the file in messages.
ModelConfig parse_hf_config(const std::string& path, std::string_view text);

/// A model whose matrices may be codes.
struct HfModel {
  ModelConfig config;
  std::string codes{};  ///< the format that quantization_config names; empty: plain elements
};
/// Likewise, for readers of codes: read_hf_config refuses a quantization_config, these only one of
/// another program.
HfModel read_hf_model(const std::string& folder);
HfModel parse_hf_model(const std::string& path, std::string_view text);

/// The text of a config.json from which transformers 4 and 5, and read_hf_config, build the model.
std::string hf_config_text(const ModelConfig& config);

/// Why int8 has no llm_int8_threshold (Dettmers et al. 2022), for messages.
inline constexpr std::string_view kNoThreshold =
    "int8 has no threshold, because activations are not rounded to 8 bits: outliers make none of "
    "them coarser";

/// The text of a config.json, for weights beside it in codes and vectors in `dtype`, a name of
/// torch's. Throws zero::Error if parse_hf_config refuses `text`.
std::string quantized_config_text(const std::string& path, std::string_view text,
                                  std::string_view codes, std::string_view dtype);

}  // namespace zero
