// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/memory_trace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "launch/process/open_files.h"

namespace zero {
namespace {

/// More than a line takes.
constexpr std::int64_t kLine = 4096;
/// By which a trace is told from other files.
constexpr std::string_view kTraceBegin = "{\"memory_trace\":";

/// As JSON; bytes that are not UTF-8 are replaced.
std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string record_text(const MemoryRecord& record) {
  return fmt::format("{{\"t\":{:.6f},\"step\":{},\"phase\":{}", record.seconds, record.step,
                     json_text(record.phase));
}

bool has_bytes(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && status.st_size > 0;
}

bool is_name(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

void rename_trace(const std::string& from, const std::string& to) {
  ZERO_CHECK(std::rename(from.c_str(), to.c_str()) == 0,
             "run.memory_trace: cannot rename {} to {}: {}", from, to, std::strerror(errno));
}

/// Renames a trace that is there so that the new name leads to its earlier part too, which goes
/// first: cut between the two, the rest is readable alone. Returns the name of what was kept.
std::string set_aside(const std::string& path) {
  const std::string before = earlier_part(path);
  const bool has_trace = has_bytes(path);
  const bool has_before = has_bytes(before);
  if (!has_trace && !has_before) return "";
  std::string name;
  std::int64_t number = 0;
  do {
    name = fmt::format("{}.{}", path, ++number);
  } while (is_name(name) || is_name(earlier_part(name)));
  if (has_before) rename_trace(before, earlier_part(name));
  if (!has_trace) return earlier_part(name);
  rename_trace(path, name);
  return name;
}

}  // namespace

std::string memory_trace_file(const std::string& path, int rank) {
  return rank == 0 ? path : fmt::format("{}.rank{}", path, rank);
}

std::string earlier_part(const std::string& path) { return path + ".before"; }

void check_trace_target(const std::string& path) {
  for (const std::string& file : {path, earlier_part(path)}) {
    struct stat status {};
    if (::stat(file.c_str(), &status) != 0) continue;
    ZERO_CHECK(S_ISREG(status.st_mode),
               "run.memory_trace: {} is no regular file; give the path of a new file, or of an "
               "earlier trace",
               file);
    if (status.st_size == 0) continue;
    std::string begin(kTraceBegin.size(), ' ');
    std::ifstream(file, std::ios::binary).read(begin.data(), std::ssize(begin));
    ZERO_CHECK(begin == kTraceBegin,
               "run.memory_trace: {} exists and is no trace of memory: its first line does not "
               "begin with {}; give another path, or remove it",
               file, kTraceBegin);
  }
}

MemoryTraceFile::MemoryTraceFile(MemoryTraceOptions options)
    : options_(std::move(options)),
      run_(std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::system_clock::now().time_since_epoch())
               .count()) {
  check_trace_target(options_.path);
  open();
  aside_ = set_aside(options_.path);
  if (!aside_.empty()) open();
}

void MemoryTraceFile::open() {
  // Never truncates: what is there is renamed, whoever wrote it meanwhile.
  constexpr int kFlags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
  file_ = Descriptor(::open(options_.path.c_str(), kFlags, 0644));
  ZERO_CHECK(file_.get() >= 0,
             "run.memory_trace: cannot write {}: {}; give the path of a file you may write to",
             options_.path, std::strerror(errno));
  ZERO_CHECK(lock_file(file_.get()) != EAGAIN,
             "run.memory_trace: {} is another run's trace, under this name or another (a hard "
             "link); end that run or wait for its end, or give this one another run.memory_trace",
             options_.path);
  file_bytes_ = 0;
}

void MemoryTraceFile::begin(BytesByLabel charged, std::int64_t device_bytes) {
  charged_ = std::move(charged);
  device_bytes_ = device_bytes;
  head();
}

void MemoryTraceFile::units(std::vector<std::string> names) {
  units_ = std::move(names);
  line(nlohmann::json{{"units", units_}}.dump(-1, ' ', false,
                                              nlohmann::json::error_handler_t::replace));
}

// What a file begins with makes it readable alone.
void MemoryTraceFile::head() {
  line(
      fmt::format("{{\"memory_trace\":1,\"run\":{},\"part\":{},\"rank\":{},\"ranks\":{},"
                  "\"device_bytes\":{}}}",
                  run_, part_, options_.rank, options_.ranks, device_bytes_));
  if (!units_.empty()) units(std::move(units_));
  state();
}

void MemoryTraceFile::state() {
  std::string text = record_text(last_) + ",\"charged\":[";
  const char* between = "";
  for (const auto& [key, bytes] : charged_) {
    fmt::format_to(std::back_inserter(text), "{}{{\"class\":\"{}\",\"label\":{},\"bytes\":{}}}",
                   std::exchange(between, ","), name_of(key.first), json_text(key.second), bytes);
  }
  line(text + "]}");
}

void MemoryTraceFile::apply(MemoryClass memory_class, const std::string& label,
                            std::int64_t bytes) {
  const auto entry = charged_.try_emplace({memory_class, label}, 0).first;
  entry->second += bytes;
  if (entry->second == 0) charged_.erase(entry);
}

void MemoryTraceFile::write(const MemoryRecord& record) {
  if (file_bytes_ > options_.most_bytes / 2 - kLine) {
    flush();
    const std::string before = earlier_part(options_.path);
    check_trace_target(options_.path);  // whoever put a file there meanwhile keeps it
    rename_trace(options_.path, before);
    open();
    ++part_;
    head();
    ZERO_CHECK(file_bytes_ < options_.most_bytes / 4,
               "run.memory_trace: the labels in use take {} bytes of a file of {}; raise "
               "run.memory_trace_bytes to {}",
               file_bytes_, options_.most_bytes / 2, 8 * file_bytes_);
  }
  last_ = record;
  if (record.bytes == 0) return line(record_text(record) + "}");
  apply(record.memory_class, record.label, record.bytes);
  line(fmt::format("{},\"class\":\"{}\",\"label\":{},\"bytes\":{},\"total\":{}}}",
                   record_text(record), name_of(record.memory_class), json_text(record.label),
                   record.bytes, record.total));
}

void MemoryTraceFile::missed(std::int64_t count, const BytesByLabel& sums,
                             const MemoryRecord& last) {
  for (const auto& [key, bytes] : sums) apply(key.first, key.second, bytes);
  last_ = last;
  line(fmt::format("{},\"missed\":{}}}", record_text(last), count));
  state();
}

void MemoryTraceFile::end(double seconds) {
  last_.seconds = seconds;
  line(record_text(last_) + ",\"end\":true}");
  flush();
}

void MemoryTraceFile::line(const std::string& text) {
  constexpr std::size_t kText = std::size_t{1} << 18;
  text_ += text;
  text_ += '\n';
  file_bytes_ += static_cast<std::int64_t>(text.size()) + 1;
  if (text_.size() >= kText) flush();
}

void MemoryTraceFile::flush() {
  std::size_t done = 0;
  while (done < text_.size()) {
    const ssize_t result = ::write(file_.get(), text_.data() + done, text_.size() - done);
    if (result < 0 && errno == EINTR) continue;
    if (result <= 0) {
      text_.clear();
      fail("run.memory_trace: cannot write {}: {}; free some space", options_.path,
           std::strerror(errno));
    }
    done += static_cast<std::size_t>(result);
  }
  text_.clear();
}

}  // namespace zero
