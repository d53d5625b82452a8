// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "architecture/decoder_shape.h"

namespace zero {

/// Whether the config.json of a folder may describe codes: of a model that answers.
enum class ModelCodes : std::uint8_t { refused, read };

/// The model of --model:
///   a published name ("llama-7b", "gpt2-124m"), or its end where only one has it ("7b")
///   sizes: "family=llama,layers=32,width=4096,...", the keys of the section `model`
///   a Hugging Face config.json, or a folder with one; no weights are needed
/// Throws zero::Error with what was found and expected, and the nearest name.
DecoderShape model_of(const std::string& text, ModelCodes codes = ModelCodes::refused);

/// Whether so many tensor ranks can have a share of every layer: of heads, columns and tokens.
bool can_cut(const DecoderShape& model, int ranks);

/// The folder whose config.json is the model of --model; empty: it has none.
std::string model_folder_of(const std::string& text);

}  // namespace zero
