// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/error.h"
#include "files/file_system.h"

namespace zero::files {
namespace {

class FolderByPath final : public OpenFolder {
 public:
  FolderByPath(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {
    ZERO_CHECK(!files.is_link(path_), "{}: is a symbolic link; expected a folder", path_);
  }

  std::vector<std::string> list() override { return files_.list(path_); }
  PathKind kind_of(const std::string& name) override {
    return files_.is_link(in(name)) ? PathKind::other : files_.kind_of(in(name));
  }
  std::unique_ptr<OpenFolder> open(const std::string& name) override {
    return files_.open_folder(in(name));
  }
  void remove_file(const std::string& name) override { files_.remove_file(in(name)); }
  void remove_folder(const std::string& name) override { files_.remove_folder(in(name)); }
  void sync() override { files_.sync_folder(path_); }

 private:
  std::string in(const std::string& name) const { return path_ + "/" + name; }

  FileSystem& files_;
  std::string path_;
};

}  // namespace

std::unique_ptr<OpenFolder> FileSystem::open_folder(const std::string& path) {
  return std::make_unique<FolderByPath>(*this, path);
}

}  // namespace zero::files
