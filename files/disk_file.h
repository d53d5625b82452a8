// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/descriptor.h"
#include "files/file_system.h"
#include "files/posix_file.h"

namespace zero::files {

/// write() uses the page cache; transfers of a queue go past the cache where they can.
class PosixOutput final : public OutputFile {
 public:
  PosixOutput(const std::string& path, int flags, TransferCounts& counts)
      : file_(path, flags, counts) {}
  /// A file that is open; `path` is for messages.
  PosixOutput(std::string path, Descriptor descriptor, TransferCounts& counts);

  const std::string& path() const override { return file_.path(); }
  void write(std::int64_t offset, std::span<const std::byte> bytes) override;
  void sync() override { file_.sync(); }
  PosixFile& file() { return file_; }

 private:
  PosixFile file_;
};

/// read() uses the page cache; transfers of a queue go past the cache where they can.
class PosixInput final : public InputFile {
 public:
  PosixInput(const std::string& path, TransferCounts& counts);
  /// A file that is open; `path` is for messages.
  PosixInput(std::string path, Descriptor descriptor, TransferCounts& counts);

  const std::string& path() const override { return file_.path(); }
  std::int64_t size() const override { return file_.size(); }
  void read(std::int64_t offset, std::span<std::byte> out) override;
  PosixFile& file() { return file_; }

 private:
  PosixFile file_;
};

/// The PosixFile of a file that disk() opened; throws zero::Error if another file system opened it.
PosixFile& posix_file(OutputFile& file);
PosixFile& posix_file(InputFile& file);

}  // namespace zero::files
