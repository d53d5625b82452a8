// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/doctor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/host.h"
#include "base/message_text.h"
#include "checkpoint/checkpoint_folder.h"
#include "collectives/agreement.h"
#include "collectives/host/process.h"
#include "files/file_system.h"
#include "launch/flight/flight_file.h"
#include "launch/flight/flight_folder.h"
#include "launch/flight/flight_place.h"
#include "launch/flight/flight_reader.h"
#include "launch/flight/run_folders.h"
#include "launch/process/open_files.h"
#include "launch/watch/judgement.h"
#include "launch/watch/last_words.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

/// Flight files of one run.
struct FoundFiles {
  std::string folder;
  std::vector<std::string> files{};
  std::string earlier{};  ///< the folder of an earlier run's files; empty: none
};

/// Those of the newest run in the folder; without any, those in the folder itself. Of earlier runs
/// one that came to a step tells more.
FoundFiles find_in(const std::string& folder) {
  FoundFiles found{.folder = folder};
  for (const std::string& run : run_folders(folder)) {
    std::vector<std::string> files = flight_files_in(run);
    if (files.empty()) continue;
    if (found.files.empty()) {
      found = {.folder = run, .files = std::move(files)};
      continue;
    }
    const bool has_stepped = has_come_to_a_step(run);
    if (has_stepped || found.earlier.empty()) found.earlier = run;
    if (has_stepped) break;
  }
  if (found.files.empty()) found.files = flight_files_in(folder);
  return found;
}

/// The same, or those of kFlightInCheckpoints in it, as people may name a checkpoint folder.
FoundFiles find_files(const std::string& folder) {
  std::error_code error;
  static_cast<void>(fs::directory_iterator(folder, error));
  ZERO_CHECK(!error, "{}: cannot be read: {}; give the folder of a run's flight files", folder,
             error.message());
  FoundFiles found = find_in(folder);
  if (!found.files.empty()) return found;
  FoundFiles inner = find_in((fs::path(folder) / kFlightInCheckpoints).string());
  return inner.files.empty() ? found : inner;
}

/// Whether the process that created the file still has it open, on this host.
bool is_written(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return is_locked(file.get());
}

/// Opens the files, and notes those that cannot be read. Returns the ranks whose files are half
/// made, ascending.
std::vector<int> read_files(const std::vector<std::string>& paths, Examination& found) {
  std::vector<int> half_made;
  for (const std::string& path : paths) {
    const auto rank = rank_of_flight_file(fs::path(path).filename().string());
    if (rank && is_half_made(path)) {
      half_made.push_back(*rank);
      found.goes_on = found.goes_on || is_written(path);
      continue;
    }
    try {
      found.files.emplace_back(flight_file_at(path));
    } catch (const Error& error) {
      found.problems.emplace_back(error.what());
    }
  }
  std::ranges::sort(half_made);
  return half_made;
}

/// The step of the newest complete checkpoint in the folder of the flight files, or in the one that
/// kFlightInCheckpoints is in.
std::optional<std::int64_t> newest_checkpoint(const std::string& folder) {
  fs::path checkpoints = (fs::path(folder) / "").parent_path();
  const auto leave_if = [&](bool is_inner) {
    if (is_inner) checkpoints = checkpoints.has_parent_path() ? checkpoints.parent_path() : ".";
  };
  leave_if(is_run_folder_name(checkpoints.filename().string()));
  leave_if(checkpoints.filename() == kFlightInCheckpoints);
  std::vector<FoundCheckpoint> all;
  // Whatever is wrong with the checkpoints, the flight files can be read.
  failure_of([&] { all = find_checkpoints(files::disk(), checkpoints.string()); });
  const auto newest = std::ranges::find_if(all, &FoundCheckpoint::complete);
  return newest == all.end() ? std::nullopt : std::optional(newest->name.step);
}

/// The folders in `folder` that have flight files, or "flight" with such files in it.
std::vector<std::string> folders_with_files(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string inner = entry.path().string();
    failure_of([&] {  // of one that is no folder, or may not be read
      if (!find_files(inner).files.empty()) found.push_back(inner);
    });
  }
  std::ranges::sort(found);
  return found;
}

/// Of a folder without flight files and checkpoints.
[[noreturn]] void refuse_folder(const std::string& folder) {
  const std::vector<std::string> inner = folders_with_files(folder);
  ZERO_CHECK(inner.empty(),
             "{}: has no flight files, and no checkpoint; give one of the folders "
             "in it that have flight files: {}",
             folder, fmt::join(inner, ", "));
  fail(
      "{}: has no flight files ({} and so on), and no checkpoint, whose run would have removed "
      "them at a good end: they lie elsewhere (run.flight_folder), or this is not the folder of a "
      "run",
      folder, flight_file_name(0));
}

/// When the rank last wrote, in nanoseconds since 1970 by its host's clock.
std::int64_t last_write(const FlightReader& file, const FlightState& state) {
  return std::max(state.changed, state.last_words_time) + file.wall_clock_offset();
}

/// What is remarkable of a process of this host, for FlightState::process_state.
std::string process_state(std::int64_t process) {
  bool stopped = false;
  // The process may end meanwhile.
  failure_of([&] {
    const auto activity = host::activity(host::process(static_cast<int>(process)));
    stopped = activity && activity->stopped;
  });
  return stopped ? "is stopped (a signal or a debugger)" : "";
}

/// From the clock of `mine` to that of `first`, as far as their hosts agree on the time of day.
std::int64_t shift_of(const FlightReader& first, const FlightReader& mine) {
  const std::int64_t shift = mine.wall_clock_offset() - first.wall_clock_offset();
  return std::abs(shift) > flight::kLatest ? 0 : shift;  // no clock is so far off
}

void check_one_run(const Examination& found) {
  const FlightState& first = found.ranks.front();
  for (std::size_t i = 1; i < found.ranks.size(); ++i) {
    const FlightState& each = found.ranks[i];
    ZERO_CHECK(each.run == first.run && each.world == first.world,
               "{} and {} are of two runs ({:016x} of {} ranks, {:016x} of {}); move the files of "
               "one of them elsewhere",
               found.files.front().path(), found.files[i].path(), first.run, first.world, each.run,
               each.world);
    ZERO_CHECK(each.rank != found.ranks[i - 1].rank,
               "{} and {} are both of rank {}; move one of them elsewhere",
               found.files[i - 1].path(), found.files[i].path(), each.rank);
  }
}

FlightRing ring_of(const Examination& found, std::size_t i) {
  const FlightReader& file = found.files[i];
  return {file.rank(), found.shifts[i], file.groups(), file.records()};
}

/// Notes what the ranks' processes on this host do. Returns those that are gone while others go on:
/// they have died.
std::vector<RankDeath> look_at_processes(Examination& found) {
  const std::string here = boot_id();
  std::vector<RankDeath> gone;
  for (std::size_t i = 0; i < found.files.size(); ++i) {
    FlightState& state = found.ranks[i];
    if (here.empty() || state.boot != here) continue;
    if (is_written(found.files[i].path())) {
      found.goes_on = true;
      state.process_state = process_state(state.process);
    } else if (!state.over) {
      gone.push_back(
          {state.rank, fmt::format("is gone: its process, {}, runs no more", state.process)});
    }
  }
  return found.goes_on ? gone : std::vector<RankDeath>{};
}

/// Finds the ranks of which nothing is known. All have made their files before one comes to a step:
/// a file that is half made then has been emptied.
void sort_unknown_ranks(const std::vector<int>& half_made, Examination& found) {
  const auto furthest = std::ranges::max(found.ranks, {}, &FlightState::step);
  for (int rank = 0; rank < furthest.world; ++rank) {
    if (std::ranges::binary_search(found.ranks, rank, {}, &FlightState::rank)) continue;
    const bool is_half_made = std::ranges::binary_search(half_made, rank);
    const bool emptied = is_half_made && furthest.step >= 0;
    if (emptied) {
      found.problems.push_back(fmt::format(
          "{}: was emptied, by hand or with its host's power: it is half made, and rank {} has "
          "come to step {}",
          (fs::path(found.folder) / flight_file_name(rank)).string(), furthest.rank,
          furthest.step));
    }
    (is_half_made && !emptied ? found.not_begun : found.missing).push_back(rank);
  }
}

}  // namespace

bool Examination::ended_well() const {
  return !ranks.empty() && std::ranges::all_of(ranks, [](const FlightState& state) {
    return state.over && !is_own_error(state.last_words);
  });
}

Examination examine(const std::string& folder) {
  const FoundFiles places = find_files(folder);
  const std::vector<std::string>& paths = places.files;
  Examination found{.folder = places.folder, .earlier = places.earlier};
  found.newest_checkpoint = newest_checkpoint(found.folder);
  if (paths.empty()) {
    if (!found.newest_checkpoint) refuse_folder(found.folder);
    return found;
  }
  const std::vector<int> half_made = read_files(paths, found);
  if (found.files.empty()) {
    ZERO_CHECK(found.problems.empty(), "{}", found.problems.front());
    found.not_begun = half_made;
    return found;
  }
  std::ranges::stable_sort(found.files, {}, &FlightReader::rank);
  for (const FlightReader& file : found.files) {
    found.ranks.push_back(file.read());
    found.written = std::max(found.written, last_write(file, found.ranks.back()));
  }
  check_one_run(found);
  const std::vector<RankDeath> deaths = look_at_processes(found);
  StragglerFinder stragglers;
  for (std::size_t i = 0; i < found.files.size(); ++i) {
    const bool elsewhere = found.ranks[i].boot != found.ranks.front().boot;
    found.shifts.push_back(elsewhere ? shift_of(found.files.front(), found.files[i]) : 0);
    found.ranks[i].move_clock(found.shifts[i]);
    stragglers.add(ring_of(found, i));
  }
  found.stragglers = stragglers.find();
  sort_unknown_ranks(half_made, found);
  if (found.ended_well()) return found;
  std::vector<int> unknown;
  std::ranges::merge(found.missing, found.not_begun, std::back_inserter(unknown));
  Judgement judgement = judge({.ranks = found.ranks,
                               .missing = std::move(unknown),
                               .deaths = deaths,
                               .goes_on = found.goes_on});
  found.diagnosis = std::move(judgement.diagnosis);
  found.is_told = judgement.is_told;
  return found;
}

std::vector<FlightRing> rings_of(const Examination& examination) {
  std::vector<FlightRing> rings;
  for (std::size_t i = 0; i < examination.files.size(); ++i) {
    rings.push_back(ring_of(examination, i));
  }
  return rings;
}

}  // namespace zero
