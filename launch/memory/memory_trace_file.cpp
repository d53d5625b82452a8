// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/memory_trace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/nanoseconds.h"
#include "collectives/agreement.h"
#include "files/disk_calls.h"
#include "files/file_system.h"
#include "launch/process/open_files.h"

namespace zero {
namespace {

/// More than a line takes.
constexpr std::int64_t kLine = 4096;
/// By which a trace is told from other files.
constexpr std::string_view kTraceBegin = "{\"memory_trace\":";
/// Between the writes of lines that are no event's, in seconds and bytes.
constexpr double kBetweenWrites = 0.1;
constexpr std::size_t kMostWaiting = std::size_t{1} << 16;

/// Bytes that are not UTF-8 are replaced.
std::string dumped(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// The begin of a place's line.
std::string place_json(const MemoryPlace& place) {
  return fmt::format("{{\"t\":{:.6f},\"step\":{},\"phase\":{}", place.seconds, place.step,
                     dumped(place.phase));
}

std::string charge_json(MemoryClass memory_class, std::string_view label, std::int64_t bytes) {
  return fmt::format("\"class\":\"{}\",\"label\":{},\"bytes\":{}", name_of(memory_class),
                     dumped(label), bytes);
}

bool has_bytes(const std::string& path) {
  return files::disk().kind_of(path) == files::PathKind::file &&
         files::disk().open_read(path)->size() > 0;
}

void rename_trace(const std::string& from, const std::string& to) {
  const std::string why = failure_of([&] { files::disk().rename(from, to); });
  ZERO_CHECK(why.empty(), "run.memory_trace: {}", why);
}

/// Renames a trace that is there so that the new name leads to its earlier part too, which goes
/// first: cut between the two, the rest is readable alone. Returns the name of what was kept.
std::string set_aside(const std::string& path) {
  const std::string before = earlier_part(path);
  const bool has_trace = has_bytes(path);
  const bool has_before = has_bytes(before);
  if (!has_trace && !has_before) return "";
  std::string name = free_name(path, earlier_part(""));
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
    check_replaceable(file, kTraceBegin, "run.memory_trace", "trace of memory");
  }
}

std::string MemoryPlace::text() const {
  if (step == 0) return phase;
  if (phase == "step") return fmt::format("step {}", step);
  return fmt::format("step {}, {}", step, phase);
}

MemoryTraceFile::MemoryTraceFile(MemoryTraceOptions options)
    : options_(std::move(options)), run_(time_of_day()) {
  check_trace_target(options_.path);
  open();
  aside_ = set_aside(options_.path);
  if (!aside_.empty()) open();
}

void MemoryTraceFile::open() {
  // Never truncates: what is there is renamed, whatever wrote it meanwhile.
  constexpr int kFlags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
  file_ =
      Descriptor(files::uninterrupted([&] { return ::open(options_.path.c_str(), kFlags, 0644); }));
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
  line(dumped({{"units", units_}}));
}

// What a file begins with makes it readable alone.
void MemoryTraceFile::head() {
  line(
      fmt::format("{{\"memory_trace\":1,\"run\":{},\"rank\":{},\"ranks\":{},"
                  "\"device_bytes\":{}}}",
                  run_, options_.rank, options_.ranks, device_bytes_));
  if (!units_.empty()) units(std::move(units_));
  std::vector<std::string> charges;
  for (const auto& [key, bytes] : charged_) {
    const MemoryLabel label = MemoryLabel::of_key(key);
    charges.push_back("{" + charge_json(label.memory_class, label.name, bytes) + "}");
  }
  line(fmt::format("{},\"charged\":[{}]}}", place_json(last_), fmt::join(charges, ",")));
  flush();
}

void MemoryTraceFile::part_if_full() {
  if (file_bytes_ <= options_.most_bytes / 2 - kLine) return;
  flush();
  check_trace_target(options_.path);  // a file that was put there meanwhile stays
  rename_trace(options_.path, earlier_part(options_.path));
  open();
  head();
  ZERO_CHECK(file_bytes_ < options_.most_bytes / 4,
             "run.memory_trace: the labels in use take {} bytes of a file of {}; raise "
             "run.memory_trace_bytes to {}",
             file_bytes_, options_.most_bytes / 2, 8 * file_bytes_);
}

void MemoryTraceFile::write(const MemoryPlace& place) {
  part_if_full();
  last_ = place;
  line(place_json(place) + "}");
  if (place.seconds - flushed_ >= kBetweenWrites || text_.size() >= kMostWaiting) flush();
}

void MemoryTraceFile::write(const MemoryPlace& place, const MemoryEvent& event) {
  part_if_full();
  last_ = place;
  const std::string key = MemoryLabel{event.memory_class, std::string(event.label)}.key();
  if ((charged_[key] += event.bytes) == 0) charged_.erase(key);
  line(fmt::format("{},{},\"total\":{}}}", place_json(place),
                   charge_json(event.memory_class, event.label, event.bytes), event.total));
  flush();
}

void MemoryTraceFile::end(double seconds) {
  last_.seconds = seconds;
  line(place_json(last_) + ",\"end\":true}");
  flush();
}

void MemoryTraceFile::line(std::string_view text) {
  text_ += text;
  text_ += '\n';
  file_bytes_ += std::ssize(text) + 1;
}

void MemoryTraceFile::flush() {
  flushed_ = last_.seconds;
  write_whole(file_.get(), std::exchange(text_, ""), "run.memory_trace", options_.path);
}

}  // namespace zero
