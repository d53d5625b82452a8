// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/flight/run_folders.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <functional>
#include <optional>
#include <system_error>

#include "base/descriptor.h"
#include "base/whole_number.h"
#include "collectives/agreement.h"
#include "launch/flight/flight_place.h"
#include "launch/flight/flight_reader.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepped = "stepped";
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kMicrosecond = 1'000;

}  // namespace

std::string run_folder_name(std::int64_t time, std::uint64_t run) {
  return fmt::format("{:%Y%m%dT%H%M%S}.{:06}Z.{:016x}",
                     fmt::gmtime(static_cast<std::time_t>(time / kSecond)),
                     time % kSecond / kMicrosecond, run);
}

std::int64_t time_of_run_folder(const std::string& name) {
  std::tm date{};
  const char* const rest = ::strptime(name.c_str(), "%Y%m%dT%H%M%S.", &date);
  const auto micro = rest == nullptr
                         ? std::nullopt
                         : whole_number(std::string_view(rest).substr(0, 6), 0, 999'999);
  if (!micro) return 0;
  return std::int64_t{::timegm(&date)} * kSecond + *micro * kMicrosecond;
}

bool is_run_folder_name(std::string_view name) {
  const std::string form = run_folder_name(0, 0);
  const auto fits = [](char c, char like) {
    const bool is_digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    return like >= '0' && like <= '9' ? is_digit : c == like;
  };
  return std::ranges::equal(name, form, fits);
}

std::vector<std::string> run_folders(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    if (!is_run_folder_name(at->path().filename().string())) continue;
    std::error_code gone;
    // A link might lead to another run's folder.
    const bool is_own = at->symlink_status(gone).type() == fs::file_type::directory;
    if (is_own) found.push_back(at->path().string());
  }
  std::ranges::sort(found, std::ranges::greater{});
  return found;
}

void note_first_step(const std::string& place) {
  const std::string note = (fs::path(place).parent_path() / kStepped).string();
  const Descriptor file(::open(
      note.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644));
}

bool has_come_to_a_step(const std::string& run_folder) {
  if (::access((fs::path(run_folder) / kStepped).c_str(), F_OK) == 0) return true;
  // There was no room for the note.
  return std::ranges::any_of(flight_files_in(run_folder), [](const std::string& place) {
    std::int64_t step = -1;
    failure_of([&] { step = FlightReader(flight_file_at(place)).read().step; });
    return step >= 0;
  });
}

void remove_ended_run(const std::string& run_folder, LinksElsewhere links) {
  for (const std::string& place : flight_files_in(run_folder)) {
    const auto link = FlightLink::read(place);
    if (links == LinksElsewhere::stay && link && !link->is_here()) continue;
    remove_ended_flight(place);
  }
  remove_empty_run(run_folder);
}

void remove_runs_beside(const std::string& place, LinksElsewhere links) {
  const fs::path own = fs::path(place).parent_path();
  for (const std::string& run : run_folders(own.parent_path().string())) {
    if (fs::path(run).filename() < own.filename()) remove_ended_run(run, links);
  }
}

void remove_own_flights(const std::string& folder, const std::string& name) {
  for (const std::string& run : run_folders(folder)) {
    if (remove_own_flight((fs::path(run) / name).string())) remove_empty_run(run);
  }
}

void remove_empty_run(const std::string& run_folder) {
  if (!flight_files_in(run_folder).empty()) return;
  const fs::path path(run_folder);
  const bool is_of_run = is_run_folder_name(path.filename().string());
  if (is_of_run) ::unlink((path / kStepped).c_str());
  ::rmdir(path.c_str());  // fails while anything is there
  if (is_of_run) ::rmdir(path.parent_path().c_str());
}

}  // namespace zero
