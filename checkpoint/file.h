// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/descriptor.h"

namespace zero {

/// An open regular file, read and written at 64-bit offsets. Owns its descriptor; destruction
/// closes it and never throws. Several threads may call read and write at the same time, as may
/// several processes on disjoint ranges. Every failure is a zero::Error that names the file, the
/// offset and the system's reason.
class File {
 public:
  /// Opens an existing file for reading.
  static File open_read(const std::string& path);
  /// Opens an existing file for writing parts of it.
  static File open_write(const std::string& path);
  /// Creates an empty file for writing; an existing file of that name loses its content.
  static File create(const std::string& path);

  const std::string& path() const { return path_; }
  std::int64_t size() const;
  /// Fills `out` from `offset`, in as many transfers as needed. Throws if the file ends first.
  void read(std::int64_t offset, std::span<std::byte> out) const;
  /// Writes all of `bytes` at `offset`, in as many transfers as needed.
  void write(std::int64_t offset, std::span<const std::byte> bytes) const;
  /// Makes the file `bytes` long and reserves the space, if the file system can: a full disk then
  /// fails here, before the first write.
  void reserve(std::int64_t bytes) const;
  /// Blocks until all written bytes are on the disk, then closes the file.
  void sync_and_close();

 private:
  File(std::string path, int flags);

  std::string path_;
  Descriptor descriptor_;
};

/// Atomically renames the file `from` to `to`, in the same directory: a reader of `to` finds
/// either the old file or the new one, whole, even after a power cut.
void replace_file(const std::string& from, const std::string& to);

/// Throws zero::Error with the reason if `path` cannot become a file: its directory is missing, or
/// something other than a regular file has that name.
void check_target(const std::string& path);

}  // namespace zero
