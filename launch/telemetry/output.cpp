// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/printable.h"

namespace zero {
namespace {

/// An open file of its own: a flag of the descriptor's would be every process's that shares it. -1
/// for a descriptor that cannot be written itself.
int open_twin(int descriptor) {
  if ((::fcntl(descriptor, F_GETFL) & O_ACCMODE) == O_RDONLY) return -1;
  return ::open(fmt::format("/proc/self/fd/{}", descriptor).c_str(),
                O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/// Whether there is room within `milliseconds`, or an error to be met.
bool has_room(int descriptor, int milliseconds) {
  struct pollfd room {
    .fd = descriptor, .events = POLLOUT, .revents = 0
  };
  return ::poll(&room, 1, milliseconds) > 0;
}

}  // namespace

Output::Output(int descriptor) : descriptor_(descriptor), kind_(Kind::other), twin_(-1) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return;
  if (S_ISREG(status.st_mode)) kind_ = Kind::file;
  if (S_ISSOCK(status.st_mode)) kind_ = Kind::socket;
  if (kind_ == Kind::other) twin_ = Descriptor(open_twin(descriptor));
}

/// As write(2): EAGAIN if there is no room.
long Output::attempt(std::string_view text) const noexcept {
  // A pipe that poll(2) calls writable takes so many bytes without a wait.
  constexpr std::size_t kSafe = 512;
  if (kind_ == Kind::file) return ::write(descriptor_, text.data(), text.size());
  if (kind_ == Kind::socket)
    return ::send(descriptor_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (twin_.get() >= 0) return ::write(twin_.get(), text.data(), text.size());
  if (has_room(descriptor_, 0)) {
    return ::write(descriptor_, text.data(), std::min(text.size(), kSafe));
  }
  errno = EAGAIN;
  return -1;
}

/// Whether a write that fails so has no reader: a terminal that hung up gives EIO, as a bad disk
/// does; a descriptor that was closed on purpose EBADF.
bool Output::is_gone(int error) const noexcept {
  return error == EPIPE || error == ECONNRESET || error == EBADF ||
         (error == EIO && kind_ != Kind::file);
}

Output::Result Output::write(std::string_view text,
                             const std::function<bool()>& waits) const noexcept {
  constexpr int kBetweenLooks = 100;  // ms
  while (!text.empty()) {
    const long done = attempt(text);
    if (done >= 0) {
      text.remove_prefix(static_cast<std::size_t>(done));
    } else if (errno == EAGAIN) {
      if (!waits()) return Result::dropped;
      static_cast<void>(has_room(descriptor_, kBetweenLooks));
    } else if (is_gone(errno)) {
      return Result::closed;
    } else if (errno != EINTR) {
      return Result::failed;
    }
  }
  return Result::written;
}

void print(std::string_view text) {
  if (text.empty()) return;
  const bool good = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  ZERO_CHECK(good && std::fflush(stdout) == 0, "standard output: cannot write: {}",
             std::strerror(errno));
}

void print_without_waiting(std::string_view text) noexcept {
  const auto never = [] { return false; };
  if (Output(STDOUT_FILENO).write(text, never) == Output::Result::written) return;
  Output(STDERR_FILENO).write(text, never);
}

void print_to_stderr(std::string_view text) noexcept {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  Output(STDERR_FILENO).write(printable_text(text), [end] {
    return std::chrono::steady_clock::now() < end;
  });
}

}  // namespace zero
