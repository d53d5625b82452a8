// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/log_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/json_fields.h"
#include "launch/memory/memory_line.h"
#include "launch/process/quantity.h"
#include "launch/telemetry/output.h"

namespace zero {

LogWatch::LogWatch(std::string path, std::chrono::milliseconds patience)
    : path_(std::move(path)), patience_(patience) {
  std::error_code error;
  ZERO_CHECK(std::filesystem::is_regular_file(path_, error),
             "{}: is no file, expected the log of a run (run.log)", path_);
}

/// Opens what the name leads to now, if that is another file, and begins anew there.
void LogWatch::follow() {
  const auto now = std::chrono::steady_clock::now();
  Descriptor named(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (named.get() < 0) {
    ZERO_CHECK(errno == ENOENT && now - seen_ < patience_, "{}: cannot be read: {}", path_,
               std::strerror(errno));
    return;
  }
  seen_ = now;
  struct stat next {};
  struct stat open {};
  ::fstat(named.get(), &next);
  const bool same =
      ::fstat(file_.get(), &open) == 0 && open.st_dev == next.st_dev && open.st_ino == next.st_ino;
  if (same && next.st_size >= at_) return;
  file_ = std::move(named);
  at_ = number_ = steps_ = 0;  // cut, or another run's
  steady_.reset();
}

LogWatch::News LogWatch::next() {
  follow();
  News news;
  std::array<char, std::size_t{1} << 16> part{};
  std::string text;
  while (file_.get() >= 0) {
    const ssize_t size = ::pread(file_.get(), part.data(), part.size(), at_ + std::ssize(text));
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
  const MemoryLine memory = MemoryLine::of(fields);
  if (++steps_ == kSteadyStep) steady_ = memory.total;
  std::string text = fmt::format("step {}  {} (peak {})", fields.count("step"),
                                 size_text(memory.total), size_text(memory.peak_total));
  const auto add = [&](std::string_view name, std::int64_t bytes) {
    if (bytes > 0) text += fmt::format("  {} {}", name, size_text(bytes));
  };
  for (const MemoryClass c : all_memory_classes()) {
    add(name_of(c), at(memory.now, c));
  }
  add("free", memory.free.value_or(0));
  add("grown by", steady_ ? memory.total - *steady_ : 0);
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
