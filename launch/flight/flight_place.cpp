// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/flight/flight_place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/host.h"
#include "base/message_text.h"
#include "base/whole_number.h"
#include "launch/flight/flight_layout.h"
#include "launch/process/open_files.h"

namespace zero {
namespace {

constexpr std::string_view kLinkBegin = "ZERO flight link\n";
constexpr std::string_view kNameInMemory = "zero_flight.";
constexpr std::string_view kFlightNameBegin = "rank_";
constexpr std::string_view kFlightNameEnd = ".flight";
constexpr std::size_t kLongestLink = 8192;
constexpr std::string_view kFlightMagic{flight::kMagic.data(), flight::kMagic.size()};

/// Opens a file, and never waits: a pipe may be there.
Descriptor open_there(const std::string& path, int access) {
  // Entries of /proc/PID/fd are links.
  const int follow = path.starts_with("/proc/") ? 0 : O_NOFOLLOW;
  return Descriptor(::open(path.c_str(), access | follow | O_CLOEXEC | O_NONBLOCK));
}

/// The first bytes, `most` or as many as there are.
std::string begin_of(const Descriptor& file, std::size_t most) {
  std::string begin(most, '\0');
  const ssize_t read = file.get() < 0 ? 0 : ::pread(file.get(), begin.data(), most, 0);
  begin.resize(static_cast<std::size_t>(std::max<ssize_t>(read, 0)));
  return begin;
}

bool has_zeros_alone(std::string_view bytes) {
  return std::ranges::count(bytes, '\0') == std::ssize(bytes);
}

/// Whether the open file is half made, as is_half_made() says, and was last changed at `since` or
/// later.
bool is_half_made(const Descriptor& file, std::time_t since) {
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  const bool has_size =
      status.st_size == 0 || std::cmp_equal(status.st_size, flight::Offsets({}).end);
  const std::string begin = begin_of(file, kFlightMagic.size());
  const bool is_read =
      std::ssize(begin) >= std::min<std::int64_t>(status.st_size, std::ssize(kFlightMagic));
  return has_size && is_read && has_zeros_alone(begin) && status.st_mtime >= since;
}

/// Whether another open file holds the lock of this one. Where there are no locks: whether a rank
/// may be about to make the file.
bool is_in_use(const Descriptor& file) {
  constexpr std::time_t kSecondsToMake = 10;
  const LockState state = lock_state(file.get());
  return state == LockState::held ||
         (state == LockState::unknown && is_half_made(file, std::time(nullptr) - kSecondsToMake));
}

/// The same of the file at `path`.
bool is_in_use(const std::string& path) {
  const Descriptor old = open_there(path, O_RDONLY);
  // The number may be that of another process by now, which has anything open.
  if (path.starts_with("/proc/") && begin_of(old, kFlightMagic.size()) != kFlightMagic)
    return false;
  return is_in_use(old);
}

/// Whether a run of this host writes the file that the link leads to. Opens nothing that a run
/// cannot have linked to: a text file may name anything, such as a device or another's locked file.
bool is_in_use(const FlightLink& link) {
  const std::string name = std::filesystem::path(link.path).filename().string();
  const bool may_be_one = name.starts_with(kNameInMemory) || link.path.starts_with("/proc/");
  return link.is_here() && may_be_one && is_in_use(link.path);
}

/// Whether the link leads to a file in memory that is there and that this user may not open.
bool is_barred(const FlightLink& link) {
  const std::string name = std::filesystem::path(link.path).filename().string();
  if (!link.is_here() || !name.starts_with(kNameInMemory)) return false;
  const Descriptor file = open_there(link.path, O_RDONLY);
  return file.get() < 0 && (errno == EACCES || errno == EPERM);
}

std::string prefix_in_memory() { return fmt::format("{}{}.", kNameInMemory, ::geteuid()); }

/// Whether the file begins as a link and is none: its host lost its power while it was written.
bool is_torn_link(const Descriptor& file) {
  const std::string begin = begin_of(file, kLinkBegin.size());
  return !begin.empty() && kLinkBegin.starts_with(begin);
}

/// Removes the file if it is a flight file, or one that was not written to its end, that nobody
/// writes.
void remove_if_ended(const std::string& path, const Descriptor& file) {
  constexpr std::time_t kEver = std::numeric_limits<std::time_t>::min();
  const bool is_one = begin_of(file, kFlightMagic.size()) == kFlightMagic ||
                      is_half_made(file, kEver) || is_torn_link(file);
  if (is_one && !is_in_use(file)) ::unlink(path.c_str());
}

void remove_linked(const FlightLink& link) {
  if (!link.is_here() || !is_path_in_memory(link.path)) return;
  remove_if_ended(link.path, open_there(link.path, O_RDWR));
}

/// Whether this process has the file open. Numbers of processes are no evidence: containers have
/// the same.
bool is_open_here(const std::string& path) {
  struct stat asked {};
  if (::stat(path.c_str(), &asked) != 0) return false;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error);
       !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    struct stat open {};
    if (::stat(at->path().c_str(), &open) == 0 && open.st_dev == asked.st_dev &&
        open.st_ino == asked.st_ino) {
      return true;
    }
  }
  return false;
}

void check_ended(bool in_use, const std::string& place, std::string_view option) {
  ZERO_CHECK(!in_use,
             "{}: {} is the file of a run that goes on; end that run or wait for its end, or give "
             "this one another {}",
             option, place, option);
}

}  // namespace

std::optional<FlightLink> FlightLink::read(const std::string& place) {
  const std::string text = begin_of(open_there(place, O_RDONLY), kLongestLink);
  if (!text.starts_with(kLinkBegin)) return std::nullopt;
  const auto json = nlohmann::json::parse(text.substr(kLinkBegin.size()), nullptr, false);
  const auto field = [&](const char* name) {
    const bool there = json.is_object() && json.contains(name) && json[name].is_string();
    return there ? json[name].get<std::string>() : "";
  };
  FlightLink link{.path = field("path"), .host = field("host"), .boot = field("boot")};
  if (link.path.empty()) return std::nullopt;
  return link;
}

void FlightLink::write(const std::string& place, std::string_view option) const {
  const nlohmann::json json{{"path", path}, {"host", host}, {"boot", boot}};
  const Descriptor file(::open(place.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  ZERO_CHECK(file.get() >= 0, "{}: cannot create {}: {}; give a folder that you may write to",
             option, place, std::strerror(errno));
  try {
    write_whole(file.get(), fmt::format("{}{}\n", kLinkBegin, json.dump()), option, place);
  } catch (...) {
    ::unlink(place.c_str());
    throw;
  }
}

bool FlightLink::is_here() const { return !boot.empty() && boot == boot_id(); }

std::string flight_file_at(const std::string& place) {
  const auto link = FlightLink::read(place);
  if (!link) return place;
  const std::string host = printable_line(link->host);
  const std::string path = printable_line(link->path);
  ZERO_CHECK(
      link->is_here() || link->host != host_name(),
      "{}: the file was in memory of this host, {}, which has started anew since: it is lost",
      place, path);
  ZERO_CHECK(link->is_here(), "{}: the file is in memory of host {}, {}: run zero_doctor there",
             place, host, path);
  ZERO_CHECK(::access(link->path.c_str(), R_OK) == 0,
             "{}: the file in memory of this host, {}, cannot be read: {}; a container has "
             "/dev/shm of its own, a file without a name ends with its process, and logind with "
             "RemoveIPC=yes removes a user's files there when the last session ends",
             place, path, std::strerror(errno));
  return link->path;
}

std::string flight_file_name(int rank) {
  return fmt::format("{}{:05}{}", kFlightNameBegin, rank, kFlightNameEnd);
}

bool is_flight_file_name(std::string_view name) {
  return name.starts_with(kFlightNameBegin) && name.ends_with(kFlightNameEnd);
}

std::vector<std::string> flight_files_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error);
       !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    if (is_flight_file_name(at->path().filename().string())) files.push_back(at->path().string());
  }
  std::ranges::sort(files);
  return files;
}

std::optional<int> rank_of_flight_file(std::string_view name) {
  if (!is_flight_file_name(name)) return std::nullopt;
  name.remove_prefix(kFlightNameBegin.size());
  name.remove_suffix(kFlightNameEnd.size());
  const auto rank = whole_number(name, 0, flight::kMost);
  return rank ? std::optional(static_cast<int>(*rank)) : std::nullopt;
}

FlightUse use_of_flight(const std::string& place) {
  if (const auto link = FlightLink::read(place)) {
    return is_barred(*link) || is_in_use(*link) ? FlightUse::goes_on : FlightUse::ended;
  }
  if (is_in_use(place)) return FlightUse::goes_on;
  const std::string begin = begin_of(open_there(place, O_RDONLY), kFlightMagic.size());
  return begin == kFlightMagic ? FlightUse::ended : FlightUse::none;
}

bool is_half_made(const std::string& path) {
  return is_half_made(open_there(path, O_RDONLY), std::numeric_limits<std::time_t>::min());
}

std::string path_in_memory(const std::string& memory, std::uint64_t run, int rank) {
  return fmt::format("{}/{}{:016x}.rank_{:05}", memory, prefix_in_memory(), run, rank);
}

bool is_path_in_memory(const std::string& path) {
  return std::filesystem::path(path).filename().string().starts_with(prefix_in_memory());
}

void check_flight_place(const std::string& place, std::string_view option) {
  if (const auto link = FlightLink::read(place)) {
    ZERO_CHECK(!is_barred(*link),
               "{}: {} leads to {}, which you may not open: another user's run may go on there; "
               "wait for its end and have that user remove both, or give this one another {}",
               option, place, printable_line(link->path), option);
    check_ended(is_in_use(*link), place, option);
  } else {
    if (!is_half_made(place)) check_replaceable(place, kFlightMagic, option, "flight file");
    check_ended(is_in_use(place), place, option);
  }
}

void clear_flight_place(const std::string& place, std::string_view option) {
  check_flight_place(place, option);
  if (const auto link = FlightLink::read(place)) remove_linked(*link);
  ::unlink(place.c_str());  // a process that reads the old file keeps it
  ::unlink(part_of(place).c_str());
}

bool remove_ended_flight(const std::string& place) {
  if (const auto link = FlightLink::read(place)) {
    if (is_barred(*link) || is_in_use(*link)) return true;
    remove_linked(*link);
    ::unlink(place.c_str());
    ::unlink(part_of(place).c_str());
    return true;
  }
  const Descriptor file = open_there(place, O_RDWR);
  if (file.get() < 0) return false;
  remove_if_ended(place, file);
  return true;
}

bool remove_own_flight(const std::string& place) {
  const auto link = FlightLink::read(place);
  const std::string path = link ? link->path : place;
  if ((link && !link->is_here()) || !is_open_here(path)) return false;
  if (!link || is_path_in_memory(path)) ::unlink(path.c_str());
  if (link) ::unlink(place.c_str());
  return true;
}

}  // namespace zero
