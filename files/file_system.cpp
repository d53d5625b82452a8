// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "files/file_system.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "files/disk_calls.h"

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

/// `path` with its first link replaced by where that leads; nothing if no part is a link that can
/// be read.
std::optional<std::filesystem::path> follow_link(const std::filesystem::path& path) {
  std::filesystem::path head;
  for (auto part = path.begin(); part != path.end(); ++part) {
    std::error_code error;
    const std::filesystem::path target = std::filesystem::read_symlink(head / *part, error);
    if (error) {
      head /= *part;
      continue;
    }
    std::filesystem::path followed = head / target;
    while (++part != path.end()) followed /= *part;
    return followed;
  }
  return std::nullopt;
}

}  // namespace

std::unique_ptr<OpenFolder> FileSystem::open_folder(const std::string& path) {
  return std::make_unique<FolderByPath>(*this, path);
}

std::string folder_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::vector<std::string> names_by_links(const std::string& path) {
  constexpr std::size_t kLinks = 40;
  const DiskCall counted;
  std::vector<std::string> names;
  for (std::optional<std::filesystem::path> name = path; name && names.size() <= kLinks;
       name = follow_link(*name)) {
    names.push_back(name->string());
  }
  return names;
}

std::string behind_links(const std::string& path) {
  const auto last = std::filesystem::path(names_by_links(path).back()).lexically_normal();
  return (last.has_filename() ? last : last.parent_path()).string();
}

bool same_place(const std::string& path, const std::string& other) {
  const DiskCall counted;
  std::error_code error;
  const bool same = std::filesystem::equivalent(path, other, error);
  ZERO_CHECK(!error || error == std::errc::no_such_file_or_directory ||
                 error == std::errc::not_a_directory || error == std::errc::filename_too_long,
             "{} or {}: cannot look there: {}", path, other, error.message());
  return same;
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
