// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "architecture/decoder_shape.h"
#include "weights/hf/quantization.h"

namespace zero {

/// The architecture that FOLDER/config.json describes, as Hugging Face's transformers 4 and 5 write
/// it, of the classes in families(). Dropout is not computed; fields on which no pass depends are
/// passed over.
/// Throws zero::Error naming file, field, found and expected if the file lacks a field or has a
/// value that the engine does not compute, and, with all of their names, if it has unknown fields.
DecoderShape read_hf_config(const std::string& folder);
/// Parses the text of such a file; `path` names the file in messages.
DecoderShape parse_hf_config(const std::string& path, std::string_view text);

/// A model whose matrices may be codes.
struct HfModel {
  DecoderShape shape;
  std::string codes{};  ///< as HfCodes::format
  std::optional<GroupQuantization> groups{};
};
/// Likewise, for readers of codes: read_hf_config refuses a quantization_config, these only one
/// that codes_from() refuses.
HfModel read_hf_model(const std::string& folder);
HfModel parse_hf_model(const std::string& path, std::string_view text);

/// The text of FOLDER/config.json. Throws zero::Error if it cannot be read, with what to give
/// instead where `folder` is a name or a cache of Hugging Face's hub.
std::string hf_config_source(const std::string& folder);

/// The text of a config.json that describes the model (Family::to_hf).
std::string hf_config_text(const DecoderShape& shape);

/// The text of a source's config.json for weights beside it in fp32: every field as it is there,
/// but that of the dtype. Throws zero::Error if parse_hf_config refuses `text`.
std::string carried_config_text(const std::string& path, std::string_view text);
/// Likewise, of FOLDER/config.json.
std::string carried_config(const std::string& folder);
/// The same of a model that has the weights of FOLDER and is described elsewhere: where the two
/// differ, as in the context, the fields are those of `model`. hf_config_text(model) if the folder
/// has no config.json, or one that does not become such a model's.
std::string carried_config(const std::string& folder, const DecoderShape& model);

/// The text of a config.json, for weights beside it in codes and vectors in `dtype`, a name of
/// torch's. Throws zero::Error if parse_hf_config refuses `text`.
std::string quantized_config_text(const std::string& path, std::string_view text,
                                  std::string_view codes, std::string_view dtype);

}  // namespace zero
