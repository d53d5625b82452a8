// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"

namespace zero {
namespace {

static_assert(sizeof(off_t) == 8, "files over 2 GiB need a 64-bit off_t");

// Linux moves at most 2 GiB - 4 KiB per call; smaller calls stay interruptible.
constexpr std::size_t kLargestTransfer = std::size_t{1} << 30;

std::string reason(int error) { return std::generic_category().message(error); }

std::string directory_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

void sync_directory(const std::string& directory) {
  const Descriptor descriptor(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ZERO_CHECK(descriptor.get() >= 0, "{}: cannot open the directory: {}", directory, reason(errno));
  // Some network file systems have no fsync for directories; their rename is durable by itself.
  ZERO_CHECK(::fsync(descriptor.get()) == 0 || errno == EINVAL,
             "{}: cannot flush the directory: {}", directory, reason(errno));
}

}  // namespace

// O_NONBLOCK: opening a pipe by mistake must not wait for its other end. Regular files ignore it.
File::File(std::string path, int flags)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666)) {
  ZERO_CHECK(descriptor_.get() >= 0, "{}: cannot open for {}: {}", path_,
             (flags & O_ACCMODE) == O_RDONLY ? "reading" : "writing", reason(errno));
  struct stat status {};
  ZERO_CHECK(::fstat(descriptor_.get(), &status) == 0 && S_ISREG(status.st_mode),
             "{}: is not a regular file", path_);
}

File File::open_read(const std::string& path) { return {path, O_RDONLY}; }
File File::open_write(const std::string& path) { return {path, O_WRONLY}; }
File File::create(const std::string& path) { return {path, O_WRONLY | O_CREAT | O_TRUNC}; }

std::int64_t File::size() const {
  struct stat status {};
  ZERO_CHECK(::fstat(descriptor_.get(), &status) == 0, "{}: cannot read its size: {}", path_,
             reason(errno));
  return status.st_size;
}

void File::read(std::int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const std::size_t wanted = std::min(out.size(), kLargestTransfer);
    const ssize_t got = ::pread(descriptor_.get(), out.data(), wanted, offset);
    if (got < 0 && errno == EINTR) continue;
    ZERO_CHECK(got >= 0, "{}: cannot read {} bytes at offset {}: {}", path_, out.size(), offset,
               reason(errno));
    ZERO_CHECK(got > 0, "{}: ends at offset {}, expected {} more bytes there: the file was cut",
               path_, offset, out.size());
    offset += got;
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

void File::write(std::int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const std::size_t wanted = std::min(bytes.size(), kLargestTransfer);
    const ssize_t put = ::pwrite(descriptor_.get(), bytes.data(), wanted, offset);
    if (put < 0 && errno == EINTR) continue;
    ZERO_CHECK(put >= 0, "{}: cannot write {} bytes at offset {}: {}", path_, bytes.size(), offset,
               reason(errno));
    ZERO_CHECK(put > 0, "{}: the system wrote none of {} bytes at offset {}", path_, bytes.size(),
               offset);
    offset += put;
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void File::reserve(std::int64_t bytes) const {
  int result = 0;
  do {
    result = ::fallocate(descriptor_.get(), 0, 0, bytes);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) {
    result = ::ftruncate(descriptor_.get(), bytes);
  }
  ZERO_CHECK(result == 0, "{}: cannot make room for {} bytes: {}", path_, bytes, reason(errno));
}

void File::sync_and_close() {
  ZERO_CHECK(::fsync(descriptor_.get()) == 0, "{}: cannot flush to disk: {}", path_, reason(errno));
  // The descriptor is gone after close(), even if close() fails.
  ZERO_CHECK(::close(descriptor_.release()) == 0, "{}: cannot close: {}", path_, reason(errno));
}

void replace_file(const std::string& from, const std::string& to) {
  ZERO_CHECK(std::rename(from.c_str(), to.c_str()) == 0, "{}: cannot rename {} to it: {}", to, from,
             reason(errno));
  sync_directory(directory_of(to));
}

void check_target(const std::string& path) {
  ZERO_CHECK(!std::filesystem::path(path).filename().empty(),
             "\"{}\": cannot write a file of that name; it names a directory", path);
  const std::string directory = directory_of(path);
  struct stat status {};
  ZERO_CHECK(::stat(directory.c_str(), &status) == 0, "{}: cannot write there: directory {}: {}",
             path, directory, reason(errno));
  ZERO_CHECK(S_ISDIR(status.st_mode), "{}: cannot write there: {} is not a directory", path,
             directory);
  ZERO_CHECK(::access(directory.c_str(), W_OK | X_OK) == 0,
             "{}: cannot write there: directory {}: {}", path, directory, reason(errno));
  if (::stat(path.c_str(), &status) != 0) return;
  ZERO_CHECK(S_ISREG(status.st_mode), "{}: is there already and is not a regular file", path);
}

}  // namespace zero
