// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "architecture/decoder_shape.h"
#include "base/json_fields.h"

/// Which layers of a decoder are local (DecoderShape::local_layers), as files and configurations
/// say it.
namespace zero {

/// Makes those layers of the shape local: without one, or with a window of 0, it has no window.
void set_window(DecoderShape& shape, std::int64_t window, std::vector<bool> local_layers);

/// The key model.local_layers: the numbers of the local layers, "0-4,6"; empty if all are local.
std::string local_layers_text(const DecoderShape& shape);
/// The keys model.window and model.local_layers of the section `model`, for a model of
/// `shape.layers`. Throws zero::Error naming the key, found and expected.
void window_from_section(JsonFields& section, DecoderShape& shape);
/// Adds the keys that window_from_section() reads.
void window_to_section(const DecoderShape& shape, nlohmann::json& section);

/// config.json's layer_types: of each of `layers` layers, whether its attention slides. Empty if
/// the field is. Throws zero::Error naming the field if it says something else, or of other layers.
std::vector<bool> layer_types_from(JsonFields& fields, std::int64_t layers);
nlohmann::json layer_types_to(const DecoderShape& shape);

}  // namespace zero
