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

/// The text of a config.json from which transformers 4 and 5, and read_hf_config, build the model.
std::string hf_config_text(const ModelConfig& config);

}  // namespace zero
