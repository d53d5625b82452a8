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
/// closes it and never throws. read and write may be called from several threads, and by several
/// processes on disjoint ranges. Every failure is a zero::Error naming file, offset and the
/// system's reason.
class File {
 public:
  /// An existing file, for reading.
  static File open_read(const std::string& path);
  /// An existing file, for writing parts of it.
  static File open_write(const std::string& path);
  /// A new, empty file, for writing; an older one of that name loses its content.
  static File create(const std::string& path);

  const std::string& path() const { return path_; }
  std::int64_t size() const;
  /// Fills `out` from `offset`, in as many transfers as it takes. Throws if the file ends first.
  void read(std::int64_t offset, std::span<std::byte> out) const;
  /// Writes all of `bytes` at `offset`, in as many transfers as it takes.
  void write(std::int64_t offset, std::span<const std::byte> bytes) const;
  /// Makes the file `bytes` long and reserves the space, if the file system can: a full disk is
  /// found before the first write.
  void reserve(std::int64_t bytes) const;
  /// Returns when all written bytes are on the disk, and closes.
  void sync_and_close();

 private:
  File(std::string path, int flags);

  std::string path_;
  Descriptor descriptor_;
};

/// Puts the file `from` in the place of `to`, in the same directory: a reader of `to` finds
/// either the old file or the new one, whole, even after a power cut.
void replace_file(const std::string& from, const std::string& to);

/// Throws zero::Error, saying why, when `path` cannot become a file: its directory is missing, or
/// something else than a regular file has that name.
void check_target(const std::string& path);

}  // namespace zero
