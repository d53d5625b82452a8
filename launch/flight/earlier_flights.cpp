// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/flight/earlier_flights.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "collectives/agreement.h"
#include "files/disk_calls.h"
#include "launch/flight/flight_place.h"
#include "launch/flight/flight_reader.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

/// The places of flight files in the folder; none if it cannot be read.
std::vector<std::string> places_in(const fs::path& folder) {
  std::vector<std::string> places;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (is_flight_file_name(entry.path().filename().string()))
      places.push_back(entry.path().string());
  }
  return places;
}

/// Whether the file tells more than that a start was ended from outside.
bool tells(const std::string& place) {
  bool result = false;
  failure_of([&] {  // the file may be of another version, or in another host's memory
    using Kind = LastWords::Kind;
    const FlightState state = FlightReader(flight_file_at(place)).read();
    const LastWords& words = state.last_words;
    const bool of_fault =
        words.kind != Kind::none && words.kind != Kind::follower && !words.is_of_signal();
    result = state.step >= 0 || of_fault;
  });
  return result;
}

void remove_all(const std::vector<std::string>& places) {
  for (const std::string& place : places) remove_ended_flight(place);
}

bool is_free(const std::string& place) {
  struct stat status {};
  return ::lstat(place.c_str(), &status) != 0 && errno == ENOENT;
}

/// Decides between the files of a folder that has some and those that wait, `waiting`; removes one
/// or the other. Returns the places of those to be moved to the others.
std::vector<std::string> kept_of(std::vector<std::string> found,
                                 const std::vector<std::string>& waiting) {
  if (waiting.empty()) return found;
  const std::string run = run_of_flight(waiting.front());
  // Moves that a kill has cut short.
  const auto later = std::ranges::partition(
      found, [&](const std::string& place) { return !run.empty() && run_of_flight(place) == run; });
  const std::vector<std::string> of_waiting(found.begin(), later.begin());
  std::vector<std::string> of_later(later.begin(), later.end());
  if (!std::ranges::any_of(of_later, tells)) {
    remove_all(of_later);
    return of_waiting;
  }
  remove_all(of_waiting);
  remove_all(waiting);
  return of_later;
}

}  // namespace

EarlierFlights::EarlierFlights(const std::string& place, Share share)
    : folder_(fs::path(place).parent_path().string()),
      name_(fs::path(place).filename().string()),
      share_(share) {}

void EarlierFlights::set_aside() const noexcept {
  failure_of([this] {  // what has not been moved stays
    std::vector<std::string> found;
    for (std::string& place : places_in(folder_)) {
      const FlightUse use = use_of_flight(place);
      if (use == FlightUse::goes_on) return;
      if (use == FlightUse::ended) found.push_back(std::move(place));
    }
    if (found.empty()) return;
    const fs::path aside = fs::path(folder_) / kEarlierFlights;
    std::error_code error;
    // Whoever may clear the folder may clear that one.
    if (fs::create_directory(aside, error)) {
      fs::permissions(aside, fs::status(folder_, error).permissions(), error);
    }
    for (const std::string& place : kept_of(std::move(found), places_in(aside))) {
      std::rename(place.c_str(), (aside / fs::path(place).filename()).c_str());
      ::unlink(part_of(place).c_str());
    }
  });
}

void EarlierFlights::put_back() const noexcept {
  failure_of([this] {
    const fs::path aside = fs::path(folder_) / kEarlierFlights;
    const auto waiting =
        share_ == Share::all ? places_in(aside) : std::vector{(aside / name_).string()};
    for (const std::string& each : waiting) {
      const std::string place = (fs::path(folder_) / fs::path(each).filename()).string();
      if (is_free(place)) std::rename(each.c_str(), place.c_str());
    }
    ::rmdir(aside.c_str());  // fails while files are there
  });
}

void EarlierFlights::remove() const noexcept {
  if (share_ != Share::all) return;
  failure_of([this] {
    const files::DiskCall counted;
    const fs::path aside = fs::path(folder_) / kEarlierFlights;
    remove_all(places_in(aside));
    ::rmdir(aside.c_str());  // fails while others' files are there
  });
}

}  // namespace zero
