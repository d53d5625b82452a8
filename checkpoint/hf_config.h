// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "model/model_config.h"

namespace zero {

/// The architecture that FOLDER/config.json describes, as Hugging Face's transformers 4 and 5 write
/// it: GPT2LMHeadModel, LlamaForCausalLM, MistralForCausalLM (without a sliding window),
/// Qwen2ForCausalLM. Dropout is not computed; fields about it and about generating text are passed
/// over. Throws zero::Error naming file, field, found and expected if the file lacks a field,
/// gives one a value that is not computed here, or has one that is not known.
ModelConfig read_hf_config(const std::string& folder);
/// The same of the text of such a file; `path` names it in messages.
ModelConfig parse_hf_config(const std::string& path, std::string_view text);

/// The text of a config.json from which transformers 4 and 5, and read_hf_config, make the model.
std::string hf_config_text(const ModelConfig& config);

}  // namespace zero
