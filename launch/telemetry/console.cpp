// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/printable.h"

namespace zero {

Console::Console(std::FILE* stream, Mode mode, Reader reader)
    : stream_(stream), mode_(mode), reader_(std::move(reader)) {
  std::fflush(stream);  // lines before the first one here
  const int descriptor = ::fileno(stream);
  if (descriptor >= 0) output_.emplace(descriptor);
}

void Console::write(const std::string& text) {
  if (mode_ == Mode::silent) return;  // from a line before on
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

std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::ceil(std::max(0.0, std::min(seconds, 1e12))));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; std::abs(bytes) >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, kUnits[unit]);
}

std::string count_text(double count) {
  if (count < 1e3) return fmt::format("{:.0f}", count);
  if (count < 1e6) return fmt::format("{:.1f}k", count / 1e3);
  return count < 1e9 ? fmt::format("{:.2f}M", count / 1e6) : fmt::format("{:.2f}G", count / 1e9);
}

}  // namespace zero
