// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/log_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/json_fields.h"
#include "device/memory_ledger.h"
#include "launch/memory/growth_watch.h"
#include "launch/telemetry/output.h"

namespace zero {
namespace {

std::string shown_bytes(std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

}  // namespace

LogWatch::LogWatch(std::string path, std::chrono::milliseconds patience)
    : path_(std::move(path)), patience_(patience) {
  std::error_code error;
  ZERO_CHECK(std::filesystem::is_regular_file(path_, error),
             "{}: is no file, expected the log of a run (run.log)", path_);
}

/// Opens what the name leads to now, if that is another file, and begins anew there.
void LogWatch::follow() {
  struct stat named {};
  if (::stat(path_.c_str(), &named) != 0) {
    const int reason = errno;
    const auto now = std::chrono::steady_clock::now();
    if (!gone_since_) gone_since_ = now;
    ZERO_CHECK(reason == ENOENT && now - *gone_since_ < patience_, "{}: cannot be read: {}", path_,
               std::strerror(reason));
    return;
  }
  gone_since_.reset();
  struct stat open {};
  const bool same = file_.get() >= 0 && ::fstat(file_.get(), &open) == 0 &&
                    open.st_dev == named.st_dev && open.st_ino == named.st_ino;
  if (same && named.st_size >= at_) return;
  if (!same) {
    file_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    ZERO_CHECK(file_.get() >= 0 || errno == ENOENT, "{}: cannot be read: {}", path_,
               std::strerror(errno));
  }
  at_ = number_ = steps_ = 0;  // cut, or another run's
  steady_.reset();
}

LogWatch::News LogWatch::next() {
  follow();
  News news;
  if (file_.get() < 0) return news;
  std::string text;
  std::array<char, std::size_t{1} << 16> part{};
  for (;;) {
    const ssize_t size =
        ::pread(file_.get(), part.data(), part.size(), at_ + static_cast<off_t>(text.size()));
    if (size < 0 && errno == EINTR) continue;
    ZERO_CHECK(size >= 0, "{}: cannot be read: {}", path_, std::strerror(errno));
    if (size == 0) break;
    text.append(part.data(), static_cast<std::size_t>(size));
  }
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
    at_ += static_cast<std::int64_t>(end - begin) + 1;
    ++number_;
    read(text.substr(begin, end - begin), news);
  }
  return news;
}

void LogWatch::read(const std::string& line, News& news) {
  JsonFields fields = JsonFields::parse(fmt::format("{}:{}", path_, number_), line);
  ZERO_CHECK(!fields.lists("memory_trace"),
             "{}: is a trace of memory, not a log; zero_memory report reads it", path_);
  if (fields.has("final") || fields.has("ended_by")) news.over = true;
  if (fields.has("resumed_after_step")) news.over = false;
  if (fields.has("memory_growth")) news.lines.push_back("warning: " + fields.text("memory_growth"));
  if (!fields.has("step")) return;
  JsonFields memory = fields.object("memory");
  if (!memory.has("total")) {
    fields.refuse("memory",
                  "is missing; expected bytes by class: an earlier version wrote the log");
  }
  const std::int64_t total = memory.count("total");
  if (++steps_ == GrowthWatch::kSteady) steady_ = total;
  std::string text = fmt::format("step {}  {} (peak {})", fields.count("step"), shown_bytes(total),
                                 shown_bytes(memory.count("peak")));
  for (const MemoryClass c : all_memory_classes()) {
    JsonFields own = memory.object(name_of(c));
    if (!own.has("now")) continue;
    text += fmt::format("  {} {}", name_of(c), shown_bytes(own.count("now")));
  }
  if (memory.has("free")) text += fmt::format("  free {}", shown_bytes(memory.count("free")));
  if (steady_ && total > *steady_) {
    text += fmt::format("  grown by {}", shown_bytes(total - *steady_));
  }
  news.lines.push_back(std::move(text));
}

void watch_log(const std::string& path, Console& console, const std::function<bool()>& goes_on) {
  constexpr std::chrono::milliseconds kBetweenLooks{200};
  LogWatch watch(path);
  while (goes_on()) {
    const LogWatch::News news = watch.next();
    for (const std::string& line : news.lines) {
      // On a terminal the newest step alone.
      if (console.mode() == Console::Mode::lines || line.starts_with("warning")) {
        console.line(line);
      } else if (&line == &news.lines.back()) {
        console.refresh(line);
      }
    }
    if (news.over) break;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  console.end_progress();
}

}  // namespace zero
