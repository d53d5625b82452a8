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
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/message_text.h"
#include "base/seconds_since.h"
#include "files/disk_calls.h"
#include "launch/process/quantity.h"

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
  const auto put = [&] { return ::write(descriptor_, text.data(), text.size()); };
  if (kind_ == Kind::file) return files::uninterrupted(put);
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
  if (good && std::fflush(stdout) == 0) return;
  const int error = errno;
  const std::string message =
      fmt::format("standard output: cannot write: {}", std::strerror(error));
  if (error == EPIPE) throw OutputClosed(message);
  throw Error(message);
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

Console::Console(std::FILE* stream, Mode mode, Reader reader)
    : stream_(stream), mode_(mode), reader_(std::move(reader)) {
  std::fflush(stream);  // lines before the first one here
  const int descriptor = ::fileno(stream);
  if (descriptor >= 0) output_.emplace(descriptor);
}

void Console::write(const std::string& text) {
  if (mode_ == Mode::silent) return;  // from a line before on
  const files::DiskCall counted;      // a reader may take its time, as a disk does
  if (!output_) {
    std::fwrite(text.data(), 1, text.size(), stream_);
    std::fflush(stream_);
    return;
  }
  const auto waits = [this] { return !reader_.hurries || !reader_.hurries(); };
  const Output::Result result = output_->write(text, waits);
  const int error = errno;
  if (result == Output::Result::failed && !std::exchange(failed_, true) && reader_.failed) {
    reader_.failed(error);
  }
  if (result != Output::Result::closed) return;
  mode_ = Mode::silent;
  if (reader_.gone) reader_.gone();
}

void Console::line(const std::string& text) {
  if (mode_ == Mode::silent) return;
  end_progress();
  write(printable_text(text) + "\n");
}

void Console::refresh(const std::string& text) {
  if (mode_ != Mode::terminal) return;
  const auto now = std::chrono::steady_clock::now();
  if (open_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  open_ = true;
  write(fmt::format("\r{}\x1b[K", text));
}

void Console::progress(const std::string& text, std::chrono::steady_clock::time_point start) {
  constexpr std::chrono::seconds kBetweenLines{10};
  refresh(text);
  const auto now = std::chrono::steady_clock::now();
  if (mode_ != Mode::lines || now - std::max(last_, start) < kBetweenLines) return;
  last_ = now;
  line(text);
}

void Console::end_progress() {
  if (!open_) return;
  open_ = false;
  write("\n");
}

std::function<void(std::int64_t done, std::int64_t all)> work_progress(
    Console& console, std::string what, std::string of,
    std::chrono::steady_clock::time_point start) {
  return [&console, what = std::move(what), of = std::move(of), start](std::int64_t done,
                                                                       std::int64_t all) {
    constexpr double kQuietSeconds = 3;
    const double seconds = seconds_since(start);
    if (seconds < kQuietSeconds || done <= 0) return;
    const double speed = static_cast<double>(done) / seconds;
    console.progress(
        fmt::format("{}: {:.0f} %  {} of {} {}  {}/s  {} left", what,
                    100 * static_cast<double>(done) / static_cast<double>(all),
                    count_text(static_cast<double>(done)), count_text(static_cast<double>(all)), of,
                    count_text(speed), duration_text(static_cast<double>(all - done) / speed)),
        start);
  };
}

bool on_terminal() {
  if (::isatty(STDOUT_FILENO) == 0) return false;
  if (std::getenv("OMPI_COMM_WORLD_RANK") == nullptr) return true;
  // mpirun gives its ranks a terminal even if its own output goes to a file: check the parent's
  // output.
  std::error_code error;
  const auto target =
      std::filesystem::read_symlink(fmt::format("/proc/{}/fd/1", ::getppid()), error).string();
  return !error && (target.starts_with("/dev/pts/") || target.starts_with("/dev/tty"));
}

Console::Mode output_mode() {
  return on_terminal() ? Console::Mode::terminal : Console::Mode::lines;
}

}  // namespace zero
