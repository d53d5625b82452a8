// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

/// What a fuzz target defines: reads `size` bytes as its reader would, and returns 0. Whatever the
/// bytes are, the reader may refuse them with zero::Error and do nothing else: any other exception,
/// a sanitizer's report or a fuzz::expect that fails ends the program.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace zero::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Runs `read`, which may refuse.
template <typename Read>
int may_refuse(const Read& read) {
  try {
    read();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
  }
  return 0;
}

/// Ends the program unless `holds`.
void expect(bool holds, const char* what);

/// A file without a name on any disk, whose content is `bytes`; gone with the object.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();
  /// Where this process can open it.
  std::string path() const;

 private:
  int descriptor_;
};

}  // namespace zero::fuzz
