// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

namespace zero {

/// The bytes of a file, or the last `most` of them; empty if it cannot be read. Without `most` also
/// of a file that has no size, as those of /proc.
inline std::string file_text(const std::filesystem::path& path,
                             std::optional<std::int64_t> most = {}) {
  std::ifstream file(path, std::ios::binary);
  if (most && file.seekg(0, std::ios::end)) {
    file.seekg(std::max<std::int64_t>(0, std::int64_t{file.tellg()} - *most));
  }
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

}  // namespace zero
