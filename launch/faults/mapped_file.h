// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace zero {

/// The first bytes of an open file as memory that all who map the file share; unmapped at the end.
class MappedFile {
 public:
  enum class Access : std::uint8_t { read, write };
  /// Throws zero::Error naming `path`. The file may be closed afterwards.
  MappedFile(int file, std::size_t bytes, Access access, const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::byte* begin() const { return begin_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace zero
