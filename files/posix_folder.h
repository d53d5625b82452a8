// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/descriptor.h"
#include "files/file_system.h"

namespace zero::files {

/// A folder by its descriptor.
class PosixFolder final : public OpenFolder {
 public:
  explicit PosixFolder(const std::string& path);

  std::vector<std::string> list() override;
  PathKind kind_of(const std::string& name) override;
  std::unique_ptr<OpenFolder> open(const std::string& name) override;
  void remove_file(const std::string& name) override;
  void remove_folder(const std::string& name) override;
  void sync() override;

 private:
  /// `name` in the folder `parent`, or a path with AT_FDCWD.
  PosixFolder(int parent, const std::string& name, std::string path);
  std::string in(const std::string& name) const { return path_ + "/" + name; }

  std::string path_;  // for messages
  Descriptor descriptor_;
};

/// Blocks until the entries of an open folder are on the disk. Throws zero::Error naming `path`.
void sync_entries(int descriptor, const std::string& path);

}  // namespace zero::files
