// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/flight/flight_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/host.h"
#include "base/nanoseconds.h"
#include "collectives/agreement.h"
#include "launch/flight/run_folders.h"
#include "launch/process/open_files.h"

namespace zero {
namespace {

// Of PhaseListener.
constexpr std::string_view kStart = "start";
constexpr std::string_view kBetween = "between steps";

void copy_name(flight::Name& to, std::string_view name) {
  const std::size_t length = std::min(name.size(), to.size() - 1);
  std::memcpy(to.data(), name.data(), length);
  to[length] = '\0';
}

/// A new, locked file.
Descriptor open_new(const std::string& path, const FlightFileOptions& options) {
  if (!path.empty()) clear_flight_place(path, options.option);
  Descriptor file(path.empty()
                      ? ::memfd_create("zero_flight", MFD_CLOEXEC | MFD_ALLOW_SEALING)
                      : ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, options.mode));
  ZERO_CHECK(file.get() >= 0 || !path.empty(), "{}: cannot create a file in memory: {}",
             options.option, std::strerror(errno));
  ZERO_CHECK(file.get() >= 0, "{}: cannot create {}: {}; give a folder that you may write to{}",
             options.option, path, std::strerror(errno), options.without);
  lock_file(file.get());
  return file;
}

/// A page that the disk cannot take later would end the process.
void take_room(int file, std::uint64_t bytes, const std::string& path,
               const FlightFileOptions& options) {
  int failure = EINTR;
  while (failure == EINTR) failure = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  if (failure == 0) {
    // A process that cut the file would end all that map it. Files with a name have no seals.
    if (path.empty()) ::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK);
    return;
  }
  if (!path.empty()) ::unlink(path.c_str());
  const std::string remedy =
      failure == EFBIG ? "raise the limit of file sizes (ulimit -f), which files in memory have too"
      : path.empty()   ? "free memory of this host"
                       : fmt::format("give another {}{}", options.option, options.without);
  constexpr double kMegabyte = 1e6;
  fail("{}: {}: no room for {:.1f} MB: {}; {}", options.option,
       path.empty() ? "a file in memory" : path, static_cast<double>(bytes) / kMegabyte,
       std::strerror(failure), remedy);
}

flight::Header head_of(int rank, int world, std::uint64_t run, const flight::Sizes& sizes) {
  flight::Header header{};
  header.magic = flight::kMagic;
  header.version = flight::kVersion;
  header.world = static_cast<std::uint32_t>(world);
  header.rank = static_cast<std::uint32_t>(rank);
  header.sizes = sizes;
  header.run = run;
  header.process = ::getpid();
  header.created = time_of_day();
  header.created_monotonic = FlightFile::now();
  copy_name(header.host, host_name());
  copy_name(header.boot, boot_id());
  header.step = -1;
  header.changed = header.created_monotonic;
  return header;
}

}  // namespace

std::int64_t FlightFile::now() noexcept {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

FlightFile FlightFile::create(const std::string& path, int rank, int world, std::uint64_t run,
                              const FlightFileOptions& options) {
  Descriptor file = open_new(path, options);
  const flight::Offsets offsets(options.sizes);
  take_room(file.get(), offsets.end, path, options);
  MappedFile map(file.get(), offsets.end, MappedFile::Access::write,
                 path.empty() ? "the flight file in memory" : path);
  flight::Header header = head_of(rank, world, run, options.sizes);
  header.names = 1;
  std::memcpy(map.begin() + offsets.names, "others", 7);
  // The magic is written last: a file without it is no flight file yet.
  constexpr std::size_t kMagicBytes = sizeof(header.magic);
  std::memcpy(map.begin() + kMagicBytes, reinterpret_cast<std::byte*>(&header) + kMagicBytes,
              sizeof(flight::Header) - kMagicBytes);
  flight::write(*map.at<std::uint64_t>(0), std::bit_cast<std::uint64_t>(flight::kMagic));
  return {std::move(file), std::move(map), path, options};
}

FlightFile::FlightFile(Descriptor file, MappedFile map, std::string path,
                       const FlightFileOptions& options)
    : file_(std::move(file)),
      map_(std::move(map)),
      path_(std::move(path)),
      place_(path_),
      option_(options.option),
      sizes_(options.sizes),
      offsets_(sizes_),
      header_(map_.at<flight::Header>(0)) {
  names_.emplace("others", 1);
}

void FlightFile::publish(std::int64_t time) noexcept {
  if (flight::read(header_->changed) < time) flight::write(header_->changed, time);
}

std::uint64_t FlightFile::name_number(std::string_view name) {
  name = name.substr(0, flight::kNameBytes - 1);
  if (const auto known = names_.find(name); known != names_.end()) return known->second;
  const std::uint32_t used = header_->names;
  if (used >= sizes_.names) return 1;
  copy_name(map_.at<flight::Name>(offsets_.names)[used], name);
  flight::write(header_->names, used + 1);
  names_.emplace(name, used + 1);
  return used + 1;
}

flight::Record& FlightFile::slot(Ticket ticket) const {
  return map_.at<flight::Record>(offsets_.records)[(ticket - 1) % sizes_.records];
}

flight::Record* FlightFile::find(Ticket ticket) const noexcept {
  if (ticket == 0) return nullptr;
  flight::Record& record = slot(ticket);
  return flight::read(record.ticket) == ticket ? &record : nullptr;
}

FlightFile::Ticket FlightFile::add(const flight::Record& record) {
  const Ticket ticket = header_->records + 1;
  flight::Record& to = slot(ticket);
  // Each store is a release: a reader that reads a new field then reads this 0 or the new ticket.
  flight::write(to.ticket, std::uint64_t{0});
  flight::write(to.what, record.what);
  flight::write(to.number, record.number);
  flight::write(to.bytes, record.bytes);
  flight::write(to.enqueued, record.enqueued);
  flight::write(to.started, record.started);
  flight::write(to.ended, record.ended);
  flight::write(to.step, step_);
  flight::write(to.ticket, ticket);
  flight::write(header_->records, ticket);
  publish(record.enqueued);
  return ticket;
}

void FlightFile::phase(std::int64_t step, std::string_view name) {
  const std::uint64_t number = name_number(name);
  step_ = step;
  flight::write(header_->step, step);
  flight::write(header_->phase, number);
  add({.what = flight::what_of(flight::Kind::phase, 0, 0, number), .enqueued = now()});
  has_started_ = has_started_ || name != kStart;
  if (step >= 0 && name != kBetween && !std::exchange(has_stepped_, true)) come_to_a_step();
}

void FlightFile::come_to_a_step() noexcept {
  if (!removes_earlier_) return;
  failure_of([this] {  // what cannot be removed stays
    const files::DiskCall counted;
    note_first_step(place_);
    remove_runs_beside(place_, LinksElsewhere::stay);
  });
}

void FlightFile::compute(std::string_view unit, Phase phase) {
  const std::uint64_t number = name_number(unit);
  const auto detail = static_cast<std::uint8_t>(phase);
  flight::write(header_->compute, number << 8 | detail);
  add({.what = flight::what_of(flight::Kind::compute, detail, 0, number), .enqueued = now()});
}

void FlightFile::mean_step(double seconds) {
  flight::write(header_->mean_step, to_nanoseconds(seconds));
}

void FlightFile::end() noexcept {
  flight::write(header_->over, std::uint32_t{1});
  publish(now());
}

std::string FlightFile::address() const {
  if (path_.empty()) return fmt::format("/proc/{}/fd/{}", ::getpid(), file_.get());
  return std::filesystem::absolute(path_).string();
}

void FlightFile::link_at(const std::string& place, std::string obstacle) {
  try {
    FlightLink{.path = address(), .host = host_name(), .boot = boot_id()}.write(place, option_);
  } catch (...) {
    if (!path_.empty()) ::unlink(path_.c_str());
    throw;
  }
  place_ = place;
  obstacle_ = std::move(obstacle);
}

std::optional<FlightCopy> FlightFile::copy() const {
  if (place_ == path_) return std::nullopt;
  return FlightCopy{.place = place_, .of = address(), .bytes = map_.copy()};
}

void FlightFile::end_and_remove() noexcept {
  end();  // a server may hold up what follows
  if (removes_earlier_ && has_started_) {
    failure_of([this] {
      const files::DiskCall counted;
      remove_runs_beside(place_, header_->rank == 0 ? LinksElsewhere::go : LinksElsewhere::stay);
    });
  }
  withdraw();
}

void FlightFile::withdraw() noexcept {
  end();
  struct stat mine {};
  struct stat there {};
  // A later run may have replaced the file.
  const bool is_there = !path_.empty() && ::fstat(file_.get(), &mine) == 0 &&
                        ::stat(path_.c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
                        mine.st_ino == there.st_ino;
  if (is_there) ::unlink(path_.c_str());
  failure_of([&] {  // no memory: the link stays
    if (place_ != path_) {
      const auto link = FlightLink::read(place_);
      if (!link || link->path != address()) return;
      ::unlink(place_.c_str());
    } else if (!is_there) {
      return;
    }
    remove_empty_run(std::filesystem::path(place_).parent_path().string());
  });
}

flight::Group& FlightFile::group_at(std::uint32_t group) const {
  return map_.at<flight::Group>(offsets_.groups)[group];
}

void FlightFile::set_ranks(flight::Group& group, const std::vector<int>& ranks) {
  if (ranks.size() > sizes_.group_ranks - ranks_used_) return;
  auto* const all = map_.at<std::int32_t>(offsets_.group_ranks);
  for (std::size_t i = 0; i < ranks.size(); ++i) flight::write(all[ranks_used_ + i], ranks[i]);
  group.first_rank = ranks_used_;
  flight::write(group.size, static_cast<std::uint32_t>(ranks.size()));
  ranks_used_ += static_cast<std::uint32_t>(ranks.size());
}

std::uint32_t FlightFile::add_group(std::string_view name, const std::vector<int>& ranks) {
  const std::uint32_t used = header_->groups;
  // Records have 16 bits for a group's number.
  if (used >= std::min<std::uint32_t>(sizes_.groups, 0xffff)) return kNoGroup;
  flight::Group& group = group_at(used);
  set_ranks(group, ranks);
  if (!name.empty()) flight::write(group.name, name_number(name));
  flight::write(header_->groups, used + 1);
  return used;
}

void FlightFile::name_group(std::uint32_t group, std::string_view name,
                            const std::vector<int>& ranks) {
  if (group == kNoGroup) return;
  set_ranks(group_at(group), ranks);
  flight::write(group_at(group).name, name_number(name));
}

FlightFile::Ticket FlightFile::submit(const Submission& submission) {
  if (submission.group == kNoGroup) return 0;
  flight::Group& group = group_at(submission.group);
  const std::uint64_t number = group.submitted + 1;
  const auto detail = static_cast<std::uint8_t>(
      submission.operation | (submission.disk_decides ? flight::kDiskDecides : 0));
  const Ticket ticket = add({.what = flight::what_of(submission.kind, detail, submission.group,
                                                     name_number(submission.name)),
                             .number = number,
                             .bytes = submission.bytes,
                             .enqueued = now()});
  flight::write(group.submitted, number);
  return ticket;
}

void FlightFile::started(Ticket ticket, std::int64_t time) noexcept {
  flight::Record* const record = find(ticket);
  if (record == nullptr) return;
  flight::write(record->started, time);
  publish(time);
}

void FlightFile::ended(Ticket ticket, std::int64_t time) noexcept {
  flight::Record* const record = find(ticket);
  if (record == nullptr) return;
  flight::write(record->ended, time);
  flight::Group& group = group_at(flight::group_of({.what = flight::read(record->what)}));
  const std::uint64_t number = flight::read(record->number);
  if (flight::read(group.ended) < number) flight::write(group.ended, number);
  publish(time);
}

std::int64_t FlightFile::enqueued(Ticket ticket) const noexcept {
  const flight::Record* const record = find(ticket);
  return record == nullptr ? 0 : flight::read(record->enqueued);
}

void FlightFile::disk_calls(const files::DiskCalls& calls) noexcept {
  // A store would have the disk write the page again.
  const auto set = [](std::int64_t& field, std::int64_t value) {
    if (flight::read(field) != value) flight::write(field, value);
  };
  set(header_->disk_calls_begun, calls.begun);  // first: a reader reads it last
  set(header_->disk_calls_ended, calls.ended);
}

std::uint32_t FlightFile::put_text(std::uint64_t offset, std::uint32_t room,
                                   std::string_view text) noexcept {
  const auto bytes = static_cast<std::uint32_t>(std::min<std::size_t>(room, text.size()));
  auto* const to = map_.at<char>(offset);
  for (std::uint32_t i = 0; i < bytes; ++i) flight::write(to[i], text[i]);
  return bytes;
}

// Readers look at the kind before all else and after it. It is 0 while the rest changes: words that
// are half written, also by a rank that is killed meanwhile, are none, and others tell of its end.
void FlightFile::write_last_words(const LastWords& words) noexcept {
  flight::Words& to = header_->words;
  flight::write(to.kind, std::uint32_t{0});
  const std::uint32_t text = put_text(offsets_.words, sizes_.words, words.text);
  flight::write(to.text, text);
  flight::write(to.own_error,
                put_text(offsets_.words + text, sizes_.words - text, words.own_error));
  flight::write(to.what, static_cast<std::uint32_t>(words.what));
  constexpr double kMostMilliseconds = std::numeric_limits<std::uint32_t>::max();
  const double waited = std::clamp(std::round(1e3 * words.waited_seconds), 0.0, kMostMilliseconds);
  flight::write(to.waited, static_cast<std::uint32_t>(waited));
  auto* const culprits = map_.at<std::int32_t>(offsets_.culprits);
  const std::size_t count = std::min<std::size_t>(flight::kMostCulprits, words.culprits.size());
  for (std::size_t i = 0; i < count; ++i) flight::write(culprits[i], words.culprits[i]);
  flight::write(to.culprits, static_cast<std::uint32_t>(count));
  flight::write(to.kind, static_cast<std::uint32_t>(words.kind));
  flight::write(header_->last_words_time, now());
}

void FlightFile::write_stack(std::string_view text) noexcept {
  flight::write(header_->stack, std::uint32_t{0});
  flight::write(header_->stack, put_text(offsets_.stack, sizes_.stack, text));
  flight::write(header_->last_words_time, now());
}

}  // namespace zero
