// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "base/json_fields.h"

namespace zero {

/// The JSON objects of a file, one a line. Errors name file and line.
class JsonLines {
 public:
  /// Throws zero::Error if the file cannot be read.
  explicit JsonLines(const std::string& path);

  /// The next line's fields; nothing at the end. Throws zero::Error if the line is no JSON object,
  /// or is cut (has no newline).
  std::optional<JsonFields> next();
  std::int64_t number() const { return number_; }  ///< of the last line, from 1

 private:
  std::string path_;
  std::ifstream file_;
  std::string text_;
  std::int64_t number_ = 0;
};

}  // namespace zero
