// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace zero {

/// The first bytes of an open file, as memory that all processes which map the file share. Unmaps
/// them at its end.
class MappedFile {
 public:
  enum class Access : std::uint8_t { read, write };
  /// Throws zero::Error naming `path`. The file may be closed afterwards.
  MappedFile(int file, std::size_t bytes, Access access, const std::string& path);

  std::byte* begin() const { return begin_.get(); }
  std::size_t bytes() const { return begin_.get_deleter().bytes; }
  /// The first of what begins so many bytes behind the begin.
  template <typename T>
  T* at(std::uint64_t offset) const {
    return reinterpret_cast<T*>(begin() + offset);
  }
  /// The bytes as they are now.
  std::string copy() const { return {at<const char>(0), bytes()}; }

 private:
  struct Unmap {
    std::size_t bytes = 0;
    void operator()(std::byte* begin) const;
  };
  std::unique_ptr<std::byte, Unmap> begin_;
};

}  // namespace zero
