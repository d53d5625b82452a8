// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/json_lines.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace zero {

void read_json_lines(const std::string& path, const std::function<bool(JsonFields&)>& take) {
  std::error_code error;
  ZERO_CHECK(!std::filesystem::is_directory(path, error),
             "{}: is a folder, expected a file: a trace (run.memory_trace) or a log (run.log)",
             path);
  std::ifstream file(path, std::ios::binary);
  ZERO_CHECK(file.good(), "{}: cannot be read: {}", path, std::strerror(errno));
  std::string text;
  for (std::int64_t number = 1; std::getline(file, text); ++number) {
    const std::string place = fmt::format("{}:{}", path, number);
    ZERO_CHECK(!file.eof(),
               "{}: the line is cut: {} bytes without a newline at their end; the program that "
               "writes the file was ended meanwhile, or still writes: remove the line to read the "
               "others",
               place, text.size());
    JsonFields fields = JsonFields::parse(place, text);
    if (!take(fields)) return;
  }
  ZERO_CHECK(!file.bad(), "{}: cannot be read on: {}", path, std::strerror(errno));
}

}  // namespace zero
