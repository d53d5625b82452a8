// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "files/disk_file.h"
#include "files/disk_queue.h"
#include "files/file_system.h"
#include "files/posix_file.h"
#include "files/posix_folder.h"
#include "files/pwrite_queue.h"
#include "files/transfer_counts.h"
#include "files/uring_queue.h"

namespace zero::files {
namespace {

/// The device and the number of the file or folder that has this name; nullopt if none has.
std::optional<std::pair<dev_t, ino_t>> node_at(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return std::nullopt;
  return std::pair(status.st_dev, status.st_ino);
}

class Disk final : public FileSystem {
 public:
  std::unique_ptr<OutputFile> create(const std::string& path, std::int64_t bytes) override;
  std::unique_ptr<OutputFile> open_write(const std::string& path) override {
    return std::make_unique<PosixOutput>(path, O_WRONLY | O_NOFOLLOW, counts_);
  }
  std::unique_ptr<InputFile> open_read(const std::string& path) override {
    return std::make_unique<PosixInput>(path, counts_);
  }

  PathKind kind_of(const std::string& path) override;
  bool is_link(const std::string& path) override;
  std::vector<std::string> list(const std::string& folder) override;
  void make_folder(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  void remove_file(const std::string& path) override;
  void remove_folder(const std::string& path) override;
  std::unique_ptr<OpenFolder> open_folder(const std::string& path) override {
    return std::make_unique<PosixFolder>(path);
  }
  void sync_folder(const std::string& path) override;
  std::int64_t free_bytes(const std::string& folder) override;

  std::unique_ptr<TransferQueue> queue(std::span<std::byte> memory, int depth) override;
  std::string how() override { return counts_.text(); }

 private:
  TransferCounts counts_;
};

// Never an existing file: a link that another user has put there would have its target cut, and so
// would a second name of a file.
std::unique_ptr<OutputFile> Disk::create(const std::string& path, std::int64_t bytes) {
  if (is_link(path) || kind_of(path) == PathKind::file) remove_file(path);
  ZERO_CHECK(kind_of(path) != PathKind::other, "{}: is not a regular file", path);
  auto file =
      std::make_unique<PosixOutput>(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, counts_);
  file->file().reserve(bytes);
  return file;
}

PathKind Disk::kind_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    ZERO_CHECK(errno == ENOENT || errno == ENOTDIR, "{}: cannot look there: {}", path,
               reason_of(errno));
    return PathKind::missing;
  }
  if (S_ISREG(status.st_mode)) return PathKind::file;
  return S_ISDIR(status.st_mode) ? PathKind::folder : PathKind::other;
}

bool Disk::is_link(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
}

std::vector<std::string> Disk::list(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  ZERO_CHECK(!error, "{}: cannot list the folder: {}", folder, error.message());
  std::ranges::sort(names);
  return names;
}

void Disk::make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return;
  const int error = errno;
  ZERO_CHECK(error != EEXIST || !is_link(path),
             "{}: cannot make the folder: a symbolic link has the name; remove the link", path);
  ZERO_CHECK(error == EEXIST && kind_of(path) == PathKind::folder, "{}: cannot make the folder: {}",
             path, reason_of(error));
}

void Disk::rename(const std::string& from, const std::string& to) {
  ZERO_CHECK(kind_of(from) != PathKind::folder || kind_of(to) == PathKind::missing,
             "{}: cannot rename folder {} to it: {}", to, from, reason_of(EEXIST));
  const auto node = node_at(from);
  if (std::rename(from.c_str(), to.c_str()) == 0) return;
  const int error = errno;
  // NFS repeats a request whose reply was lost; the second one finds nothing to rename.
  const bool done = error == ENOENT && node && !node_at(from) && node_at(to) == node;
  ZERO_CHECK(done, "{}: cannot rename {} to it: {}", to, from, reason_of(error));
}

void Disk::remove_file(const std::string& path) {
  ZERO_CHECK(::unlink(path.c_str()) == 0 || errno == ENOENT, "{}: cannot remove the file: {}", path,
             reason_of(errno));
}

void Disk::remove_folder(const std::string& path) {
  ZERO_CHECK(::rmdir(path.c_str()) == 0 || errno == ENOENT, "{}: cannot remove the folder: {}",
             path, reason_of(errno));
}

void Disk::sync_folder(const std::string& path) {
  const Descriptor descriptor(
      uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  ZERO_CHECK(descriptor.get() >= 0, "{}: cannot open the folder: {}", path, reason_of(errno));
  sync_entries(descriptor.get(), path);
}

std::int64_t Disk::free_bytes(const std::string& folder) {
  struct statvfs status {};
  ZERO_CHECK(::statvfs(folder.c_str(), &status) == 0, "{}: cannot read its free space: {}", folder,
             reason_of(errno));
  ZERO_CHECK(::access(folder.c_str(), W_OK | X_OK) == 0, "{}: cannot write there: {}", folder,
             reason_of(errno));
  if (status.f_blocks == 0) return std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(status.f_bavail * status.f_frsize);
}

std::unique_ptr<TransferQueue> Disk::queue(std::span<std::byte> memory, int depth) {
  ZERO_CHECK(depth > 0, "files: a queue of depth {}, expected at least 1", depth);
  UringQueue uring = open_uring_queue(memory, depth);
  if (!uring.queue) {
    counts_.use("pwrite: " + uring.note, "");
    return std::make_unique<PwriteQueue>(depth);
  }
  counts_.use("io_uring", uring.note);
  return std::make_unique<DiskQueue>(std::move(uring.queue), depth, counts_);
}

}  // namespace

FileSystem& disk() {
  static Disk disk;
  return disk;
}

}  // namespace zero::files
