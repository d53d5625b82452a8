// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "files/replace_file.h"

#include <filesystem>

#include "base/error.h"

namespace zero::files {

std::string folder_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

void replace_file(FileSystem& files, const std::string& from, const std::string& to) {
  files.rename(from, to);
  files.sync_folder(folder_of(to));
}

void check_target(FileSystem& files, const std::string& path) {
  ZERO_CHECK(!std::filesystem::path(path).filename().empty(),
             "\"{}\": cannot write a file of that name; it names a folder", path);
  const std::string folder = folder_of(path);
  const PathKind kind = files.kind_of(folder);
  ZERO_CHECK(kind != PathKind::missing,
             "{}: cannot write there: folder {}: No such file or directory", path, folder);
  ZERO_CHECK(kind == PathKind::folder, "{}: cannot write there: {} is not a folder", path, folder);
  static_cast<void>(files.free_bytes(folder));  // throws if the folder may not be written to
  const PathKind target = files.kind_of(path);
  ZERO_CHECK(target == PathKind::missing || target == PathKind::file,
             "{}: is there already and is not a regular file", path);
}

}  // namespace zero::files
