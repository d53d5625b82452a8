// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "files/file_system.h"

namespace zero {

/// `work`, whose zero::Error gets `advice` behind its message.
template <typename Work>
auto advised(std::string_view advice, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    fail("{}; {}", error.what(), advice);
  }
}

/// A file that is written under a temporary name, removed unless rename() gives it its own. What
/// had the temporary name is removed, never written through: a symbolic link there leads nowhere.
class NewFile {
 public:
  /// Throws zero::Error naming the file, as the other calls do. `disk` must outlive this.
  explicit NewFile(std::string path, files::FileSystem& disk = files::disk());
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  void write(std::span<const std::byte> bytes);
  /// Goes back to the begin of the file, to write its first bytes again.
  void rewind();
  /// Closes the file, whose bytes are then on the disk.
  void finish();
  void rename(const std::string& path);

 private:
  void flush();

  std::string path_;
  files::FileSystem& disk_;
  std::unique_ptr<files::OutputFile> file_;
  std::vector<std::byte> unwritten_;
  std::int64_t at_ = 0;  // where they belong
  bool renamed_ = false;
};

/// Writes a file whole or not at all, over a file of that name; a symbolic link is replaced. Throws
/// zero::Error naming the file, also if a folder, a pipe or a device has the name.
void write_whole_file(const std::string& path, std::string_view text);

}  // namespace zero
