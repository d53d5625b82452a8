// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "base/json_fields.h"

namespace zero {

/// Calls `take` with the fields of each line of a file of JSON objects, until it returns false.
/// Throws zero::Error, naming file and line, if a line is no object or is cut: has no newline.
void read_json_lines(const std::string& path, const std::function<bool(JsonFields&)>& take);

}  // namespace zero
