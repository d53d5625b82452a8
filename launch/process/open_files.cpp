// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process/open_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

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
  if (::fcntl(file, F_OFD_SETLK, &whole) == 0) return 0;
  if (errno == EBADF) {  // open for reading: excludes all who may write
    whole.l_type = F_RDLCK;
    if (::fcntl(file, F_OFD_SETLK, &whole) == 0) return 0;
  }
  if (errno == EACCES) return EAGAIN;
  if (errno != EINVAL) return errno;
  return ::flock(file, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
}

void write_whole(int file, std::string_view text, std::string_view key, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    ZERO_CHECK(written > 0, "{}: cannot write {}: {}; free some space", key, path,
               std::strerror(errno));
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace zero
