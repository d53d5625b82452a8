// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/json_lines.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace zero {

JsonLines::JsonLines(const std::string& path) : path_(path) {
  std::error_code error;
  ZERO_CHECK(!std::filesystem::is_directory(path, error),
             "{}: is a folder, expected a file: a trace (run.memory_trace) or a log (run.log)",
             path);
  file_.open(path, std::ios::binary);
  ZERO_CHECK(file_.good(), "{}: cannot be read: {}", path, std::strerror(errno));
}

std::optional<JsonFields> JsonLines::next() {
  if (!std::getline(file_, text_)) {
    ZERO_CHECK(!file_.bad(), "{}:{}: cannot be read on: {}", path_, number_, std::strerror(errno));
    return std::nullopt;
  }
  ++number_;
  const std::string place = fmt::format("{}:{}", path_, number_);
  ZERO_CHECK(!file_.eof(),
             "{}: the line is cut: {} bytes without a newline at their end; whoever wrote the file "
             "was ended meanwhile, or still writes: remove the line to read the others",
             place, text_.size());
  return JsonFields::parse(place, text_);
}

}  // namespace zero
