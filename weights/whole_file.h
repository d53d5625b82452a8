// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"
#include "files/file_system.h"

namespace zero {

/// Throws zero::Error naming the file if it has more than `largest` bytes.
inline void check_size(const files::InputFile& file, std::int64_t largest) {
  ZERO_CHECK(file.size() <= largest, "{}: has {} bytes, expected at most {}", file.path(),
             file.size(), largest);
}

/// All bytes of an open file.
inline std::string whole_file(files::InputFile& file) {
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace zero
