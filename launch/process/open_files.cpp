// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process/open_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "collectives/agreement.h"
#include "files/disk_calls.h"
#include "files/file_system.h"
#include "weights/text_file.h"

namespace zero {

OpenFileLimit raise_open_file_limit() noexcept {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);  // cannot fail
  const rlimit raised{.rlim_cur = files.rlim_max, .rlim_max = files.rlim_max};
  if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) files = raised;
  return {.soft = files.rlim_cur, .hard = files.rlim_max};
}

int lock_file(int file) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  const auto lock = [&] { return ::fcntl(file, F_OFD_SETLK, &whole); };
  if (files::uninterrupted(lock) == 0) return 0;
  if (errno == EBADF) {  // open for reading: excludes all who may write
    whole.l_type = F_RDLCK;
    if (files::uninterrupted(lock) == 0) return 0;
  }
  if (errno == EACCES) return EAGAIN;
  if (errno != EINVAL) return errno;
  return ::flock(file, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
}

LockState lock_state(int file) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(file, F_OFD_GETLK, &whole) == 0) {
    return whole.l_type == F_UNLCK ? LockState::free : LockState::held;
  }
  if (errno != EINVAL) return LockState::unknown;
  if (::flock(file, LOCK_SH | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK ? LockState::held : LockState::unknown;
  }
  ::flock(file, LOCK_UN);
  return LockState::free;
}

void write_whole(int file, std::string_view text, std::string_view key, const std::string& path) {
  struct stat status {};
  const auto look = [&] { return ::fstat(file, &status); };
  const auto put = [&] { return ::write(file, text.data(), text.size()); };
  // The reader of a pipe is no disk.
  const bool on_disk = files::uninterrupted(look) == 0 && S_ISREG(status.st_mode);
  while (!text.empty()) {
    const ssize_t written = on_disk ? files::uninterrupted(put) : put();
    if (written < 0 && errno == EINTR) continue;
    ZERO_CHECK(written > 0, "{}: cannot write {}: {}; free some space", key, path,
               std::strerror(errno));
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void check_writable(const std::string& path, const std::string& key) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const std::string where = folder.empty() ? "." : folder.string();
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::is_other(status)) {  // /dev/null, a pipe: nothing is made in its folder
    ZERO_CHECK(::access(path.c_str(), W_OK) == 0,
               "{}: {} cannot be written to: {}; give another {}, or null", key, path,
               std::strerror(errno), key);
    return;
  }
  ZERO_CHECK(std::filesystem::is_directory(where, error),
             "{}: the folder {} of {} does not exist; make it first", key, where, path);
  ZERO_CHECK(::access(where.c_str(), W_OK) == 0,
             "{}: the folder {} cannot be written to: {}; give another {}, or null", key, where,
             std::strerror(errno), key);
  ZERO_CHECK(!std::filesystem::is_directory(path, error),
             "{}: {} is a folder; give the path of a file", key, path);
}

void check_replaceable(const std::string& path, std::string_view begin, std::string_view key,
                       std::string_view kind) {
  std::string found;
  const std::string why = failure_of([&] {
    const files::PathKind there = files::disk().kind_of(path);
    if (there == files::PathKind::missing) return;
    ZERO_CHECK(there == files::PathKind::file,
               "{} is no regular file; give the path of a new file, or of an earlier {}", path,
               kind);
    found = start_of_file(*files::disk().open_read(path), begin.size());
  });
  ZERO_CHECK(why.empty(), "{}: {}", key, why);
  ZERO_CHECK(found.empty() || found == begin,
             "{}: {} exists and is no {}: its first line does not begin as theirs do; give another "
             "path, or remove it",
             key, path, kind);
}

std::string free_name(const std::string& path, const std::string& also) {
  const auto is_there = [](const std::string& name) {
    return files::disk().is_link(name) || files::disk().kind_of(name) != files::PathKind::missing;
  };
  for (std::int64_t number = 1;; ++number) {
    std::string name = fmt::format("{}.{}", path, number);
    if (!is_there(name) && !is_there(name + also)) return name;
  }
}

}  // namespace zero
