// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "files/posix_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "files/posix_file.h"

namespace zero::files {

PosixFolder::PosixFolder(const std::string& path) : PosixFolder(AT_FDCWD, path, path) {}

PosixFolder::PosixFolder(int parent, const std::string& name, std::string path)
    : path_(std::move(path)), descriptor_(uninterrupted([&] {
        return ::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      })) {
  const int error = errno;
  ZERO_CHECK(
      descriptor_.get() >= 0, "{}: cannot open the folder: {}", path_,
      error == ELOOP || error == ENOTDIR ? "is a symbolic link, or no folder" : reason_of(error));
}

std::vector<std::string> PosixFolder::list() {
  // A description of its own, whose place in the folder is the start.
  const int own = uninterrupted(
      [&] { return ::openat(descriptor_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  DIR* const entries = own < 0 ? nullptr : ::fdopendir(own);
  int error = errno;
  std::vector<std::string> names;
  if (entries != nullptr) {
    errno = 0;
    while (const dirent* entry = ::readdir(entries)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
      errno = 0;
    }
    error = errno;
    ::closedir(entries);
  } else if (own >= 0) {
    ::close(own);
  }
  ZERO_CHECK(entries != nullptr && error == 0, "{}: cannot list the folder: {}", path_,
             reason_of(error));
  std::ranges::sort(names);
  return names;
}

PathKind PosixFolder::kind_of(const std::string& name) {
  struct stat status {};
  if (::fstatat(descriptor_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    ZERO_CHECK(errno == ENOENT, "{}: cannot look there: {}", in(name), reason_of(errno));
    return PathKind::missing;
  }
  if (S_ISREG(status.st_mode)) return PathKind::file;
  return S_ISDIR(status.st_mode) ? PathKind::folder : PathKind::other;
}

std::unique_ptr<OpenFolder> PosixFolder::open(const std::string& name) {
  return std::unique_ptr<OpenFolder>(new PosixFolder(descriptor_.get(), name, in(name)));
}

void PosixFolder::remove_file(const std::string& name) {
  ZERO_CHECK(::unlinkat(descriptor_.get(), name.c_str(), 0) == 0 || errno == ENOENT,
             "{}: cannot remove the file: {}", in(name), reason_of(errno));
}

void PosixFolder::remove_folder(const std::string& name) {
  ZERO_CHECK(::unlinkat(descriptor_.get(), name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT,
             "{}: cannot remove the folder: {}", in(name), reason_of(errno));
}

void PosixFolder::sync() { sync_entries(descriptor_.get(), path_); }

// Some network file systems have no fsync for folders; their rename is durable by itself.
void sync_entries(int descriptor, const std::string& path) {
  const int result = uninterrupted([&] { return ::fsync(descriptor); });
  ZERO_CHECK(result == 0 || errno == EINVAL, "{}: cannot flush the folder: {}", path,
             reason_of(errno));
}

}  // namespace zero::files
