// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/random_hex.h"
#include "files/disk_calls.h"
#include "files/file_system.h"
#include "files/posix_file.h"
#include "files/pwrite_queue.h"
#include "files/uring_queue.h"

namespace zero::files {
namespace {

/// Device and inode number of the file or folder at `path`; nothing if there is none. Part of a
/// caller's DiskCall.
std::optional<std::pair<dev_t, ino_t>> node_at(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return std::nullopt;
  return std::pair(status.st_dev, status.st_ino);
}

/// Blocks until the entries of an open folder are on the disk. Some network file systems have no
/// fsync for folders; their rename is durable by itself.
void sync_entries(int descriptor, const std::string& path) {
  const int result = uninterrupted([&] { return ::fsync(descriptor); });
  ZERO_CHECK(result == 0 || errno == EINVAL, "{}: cannot flush the folder: {}", path,
             reason_of(errno));
}

/// A new file in `folder`, for reading and writing, that no name leads to.
Descriptor nameless_file(const std::string& folder) {
  constexpr mode_t kOwner = 0600;
  Descriptor file(uninterrupted(
      [&] { return ::open(folder.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, kOwner); }));
  if (file.get() >= 0) return file;
  // What kernels and file systems without such files answer; a missing folder is told below.
  const bool unknown = errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT || errno == EINVAL;
  ZERO_CHECK(unknown, "{}: cannot make a file there: {}", folder, reason_of(errno));
  const std::string path = fmt::format("{}/.zero-{}-{}", folder, ::getpid(), random_hex(16));
  file = Descriptor(uninterrupted([&] {
    return ::open(path.c_str(), O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC, kOwner);
  }));
  ZERO_CHECK(file.get() >= 0, "{}: cannot make a file there: {}", folder, reason_of(errno));
  ZERO_CHECK(::unlink(path.c_str()) == 0, "{}: cannot remove the file: {}", path, reason_of(errno));
  return file;
}

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
  const DiskCall counted;
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
  const DiskCall counted;
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
  const DiskCall counted;
  ZERO_CHECK(::unlinkat(descriptor_.get(), name.c_str(), 0) == 0 || errno == ENOENT,
             "{}: cannot remove the file: {}", in(name), reason_of(errno));
}

void PosixFolder::remove_folder(const std::string& name) {
  const DiskCall counted;
  ZERO_CHECK(::unlinkat(descriptor_.get(), name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT,
             "{}: cannot remove the folder: {}", in(name), reason_of(errno));
}

void PosixFolder::sync() { sync_entries(descriptor_.get(), path_); }

/// Transfers by io_uring; but by several threads on file systems where io_uring would run one
/// transfer of a file at a time (PosixFile::uring_in_parallel()).
class DiskQueue final : public TransferQueue {
 public:
  /// `uring`: a queue of `options`. `counts` is told of threads at their first use.
  DiskQueue(std::unique_ptr<TransferQueue> uring, const QueueOptions& options,
            TransferCounts& counts);

  Ticket write(OutputFile& file, std::int64_t offset, std::span<const std::byte> bytes) override;
  Ticket read(InputFile& file, std::int64_t offset, std::span<std::byte> out) override;
  void flush() override { uring_->flush(); }
  void wait(Ticket ticket) override;

 private:
  struct QueueSlot {
    TransferQueue* queue;
    Ticket ticket;  // of that queue
  };
  Ticket add(const QueueSlot& slot);
  TransferQueue& queue_of(const PosixFile& file);

  std::unique_ptr<TransferQueue> uring_;
  std::unique_ptr<PwriteQueue> threads_;  // null until a file needs them
  QueueOptions options_;
  TransferCounts& counts_;
  Ticket last_ = 0;
  std::unordered_map<Ticket, QueueSlot> slots_;  // not yet waited for
};

DiskQueue::DiskQueue(std::unique_ptr<TransferQueue> uring, const QueueOptions& options,
                     TransferCounts& counts)
    : uring_(std::move(uring)), options_(options), counts_(counts) {}

TransferQueue::Ticket DiskQueue::write(OutputFile& file, std::int64_t offset,
                                       std::span<const std::byte> bytes) {
  TransferQueue& queue = queue_of(posix_file(file));
  return add({&queue, queue.write(file, offset, bytes)});
}

TransferQueue::Ticket DiskQueue::read(InputFile& file, std::int64_t offset,
                                      std::span<std::byte> out) {
  TransferQueue& queue = queue_of(posix_file(file));
  return add({&queue, queue.read(file, offset, out)});
}

void DiskQueue::wait(Ticket ticket) {
  const auto slot = slots_.extract(ticket);
  ZERO_CHECK(!slot.empty(), "files: no transfer has ticket {}; the last is {}", ticket, last_);
  slot.mapped().queue->wait(slot.mapped().ticket);
}

TransferQueue::Ticket DiskQueue::add(const QueueSlot& slot) {
  slots_.emplace(++last_, slot);
  return last_;
}

TransferQueue& DiskQueue::queue_of(const PosixFile& file) {
  if (file.uring_in_parallel()) return *uring_;
  if (!threads_) {
    threads_ = std::make_unique<PwriteQueue>(options_);
    counts_.use(fmt::format("pwrite: io_uring would move one block of a file at a time on {}",
                            file.file_system()),
                threads_->note());
  }
  return *threads_;
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
  ScratchFile create_scratch(const std::string& folder, std::int64_t bytes) override;

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

  std::unique_ptr<TransferQueue> queue(std::span<std::byte> memory,
                                       const QueueOptions& options) override;
  std::string io_description() override { return counts_.text(); }

 private:
  TransferCounts counts_;
};

// Opening an existing file would truncate the target of a link that another user made, or the other
// names of the file.
std::unique_ptr<OutputFile> Disk::create(const std::string& path, std::int64_t bytes) {
  if (is_link(path) || kind_of(path) == PathKind::file) remove_file(path);
  ZERO_CHECK(kind_of(path) != PathKind::other, "{}: is not a regular file", path);
  auto file =
      std::make_unique<PosixOutput>(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, counts_);
  file->file().reserve(bytes);
  return file;
}

ScratchFile Disk::create_scratch(const std::string& folder, std::int64_t bytes) {
  const std::string path = folder + "/(no name)";
  Descriptor file = nameless_file(folder);
  Descriptor same(::fcntl(file.get(), F_DUPFD_CLOEXEC, 0));
  ZERO_CHECK(same.get() >= 0, "{}: cannot open for reading: {}", path, reason_of(errno));
  auto output = std::make_unique<PosixOutput>(path, std::move(file), counts_);
  output->file().write_in_place();
  output->file().reserve(bytes);
  return {std::move(output), std::make_unique<PosixInput>(path, std::move(same), counts_)};
}

PathKind Disk::kind_of(const std::string& path) {
  const DiskCall counted;
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
  const DiskCall counted;
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
}

std::vector<std::string> Disk::list(const std::string& folder) {
  const DiskCall counted;
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
  const DiskCall counted;
  if (::mkdir(path.c_str(), 0777) == 0) return;
  const int error = errno;
  ZERO_CHECK(error != EEXIST || !is_link(path),
             "{}: cannot make the folder: a symbolic link has the name; remove the link", path);
  ZERO_CHECK(error == EEXIST && kind_of(path) == PathKind::folder, "{}: cannot make the folder: {}",
             path, reason_of(error));
}

void Disk::rename(const std::string& from, const std::string& to) {
  const DiskCall counted;
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
  const DiskCall counted;
  ZERO_CHECK(::unlink(path.c_str()) == 0 || errno == ENOENT, "{}: cannot remove the file: {}", path,
             reason_of(errno));
}

void Disk::remove_folder(const std::string& path) {
  const DiskCall counted;
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
  const DiskCall counted;
  struct statvfs status {};
  ZERO_CHECK(::statvfs(folder.c_str(), &status) == 0, "{}: cannot read its free space: {}", folder,
             reason_of(errno));
  ZERO_CHECK(::access(folder.c_str(), W_OK | X_OK) == 0, "{}: cannot write there: {}", folder,
             reason_of(errno));
  if (status.f_blocks == 0) return std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(status.f_bavail * status.f_frsize);
}

std::unique_ptr<TransferQueue> Disk::queue(std::span<std::byte> memory,
                                           const QueueOptions& options) {
  ZERO_CHECK(options.depth > 0, "files: a queue of depth {}, expected at least 1", options.depth);
  ZERO_CHECK(options.threads > 0, "files: a queue of {} threads, expected at least 1",
             options.threads);
  UringQueue uring = open_uring_queue(memory, options);
  if (!uring.queue) {
    auto threads = std::make_unique<PwriteQueue>(options);
    counts_.use("pwrite: " + uring.note, threads->note());
    return threads;
  }
  counts_.use("io_uring", uring.note);
  return std::make_unique<DiskQueue>(std::move(uring.queue), options, counts_);
}

}  // namespace

FileSystem& disk() {
  static Disk disk;
  return disk;
}

}  // namespace zero::files
