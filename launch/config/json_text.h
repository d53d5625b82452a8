// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace zero {

/// JSON as people write it for trainers: // and # and /* */ comments and trailing commas are
/// accepted; a key given twice in one object is not. Throws zero::Error with `source`, line and
/// column.
nlohmann::json parse_json_text(std::string_view text, std::string_view source);

/// Reads and parses a file; throws zero::Error when it cannot be read.
nlohmann::json read_json_file(const std::string& path);

}  // namespace zero
