// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "architecture/decoder_shape.h"
#include "architecture/name_map.h"
#include "base/json_fields.h"

namespace zero {

/// A family of models: how its files and configurations describe a decoder. One source file each,
/// and a row in families().
struct Family {
  std::string_view name;  ///< the key model.family
  /// A class of transformers that config.json may name.
  struct HfClass {
    std::string_view architecture;  ///< in "architectures"
    std::string_view model_type;    ///< used if "architectures" is absent
  };
  std::span<const HfClass> hf_classes;
  std::span<const std::string_view> keys;       ///< of the configuration's section `model`
  std::span<const std::string_view> published;  ///< the key model.name: sizes of known models
  DecoderNames tensors;
  NameMap (*file_names)(const DecoderShape& shape);

  // Shapes are not validated. Throw zero::Error naming file, field, found and expected.
  DecoderShape (*from_hf)(JsonFields& config, std::string_view model_type);
  /// Also called with all sizes of a family that has no default ones 2, for the defaults of others.
  DecoderShape (*from_section)(JsonFields& section);
  /// The config.json from which transformers 4 and 5, and from_hf, build the model.
  nlohmann::json (*to_hf)(const DecoderShape& shape);
  /// The section that says all of the shape.
  nlohmann::json (*to_section)(const DecoderShape& shape);
  bool has_default_sizes = false;  ///< a section without a size, or a name, is complete
};

std::span<const Family* const> families();
/// Throws zero::Error if there is no family of that name.
const Family& family_named(std::string_view name);
/// The family that has sizes of that name; null if none has.
const Family* family_of_published(std::string_view name);
/// All names that have a family_of_published().
std::vector<std::string> published_names();

/// The decoder of a section `model`: {{"family", "llama"}, {"layers", 16}, ...}, or {{"name",
/// "gpt2-124m"}}, of the family that has the name. Throws zero::Error naming the key that is
/// missing or out of range.
DecoderShape decoder_shape(nlohmann::json section);

/// How the files of the shape's family name its tensors.
NameMap file_names(const DecoderShape& shape);

}  // namespace zero
