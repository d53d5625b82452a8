// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/doctor.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
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
#include "launch/process/open_files.h"
#include "launch/watch/judgement.h"
#include "launch/watch/last_words.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kStragglersShown = 5;

std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (is_flight_file_name(entry.path().filename().string()))
      files.push_back(entry.path().string());
  }
  ZERO_CHECK(!error, "{}: cannot be read: {}; give the folder of a run's flight files",
             folder.string(), error.message());
  std::ranges::sort(files);
  return files;
}

/// The folder's flight files, or those of kFlightInCheckpoints in it, as people may name a
/// checkpoint folder.
std::vector<std::string> find_files(std::string& folder) {
  std::vector<std::string> files = files_in(folder);
  const fs::path inner = fs::path(folder) / kFlightInCheckpoints;
  std::error_code error;
  if (!files.empty() || !fs::is_directory(inner, error)) return files;
  files = files_in(inner);
  if (!files.empty()) folder = inner.string();
  return files;
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

/// The step of the newest complete checkpoint in a folder without flight files: a run that ended
/// well has removed its own. Throws zero::Error if there is none.
std::int64_t newest_checkpoint(const std::string& folder) {
  const std::vector<FoundCheckpoint> all = find_checkpoints(files::disk(), folder);
  const auto newest = std::ranges::find_if(all, &FoundCheckpoint::complete);
  ZERO_CHECK(newest != all.end(),
             "{}: has no flight files ({} and so on), and no checkpoint, whose run would have "
             "removed them at a good end: they lie elsewhere (run.flight_folder), or this is not "
             "the folder of a run",
             folder, flight_file_name(0));
  return newest->name.step;
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

/// "step 812 (ranks 0-2), 811 (rank 3)"
std::string steps_text(const std::vector<FlightState>& states) {
  std::map<std::int64_t, std::vector<int>, std::greater<>> steps;
  for (const FlightState& state : states) steps[state.step].push_back(state.rank);
  std::vector<std::string> parts;
  for (const auto& [step, ranks] : steps) {
    const std::string text = step < 0 ? "before step 1" : fmt::format("in step {}", step);
    parts.push_back(steps.size() == 1 ? text : fmt::format("{} ({})", text, ranks_text(ranks)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string not_begun_text(const std::vector<int>& ranks) {
  if (ranks.empty()) return "";
  const bool one = ranks.size() == 1;
  return fmt::format("{} {} not begun: {} half made (a start, or a host that lost its power)\n",
                     ranks_text(ranks), one ? "has" : "have",
                     one ? "its file is" : "their files are");
}

std::string stragglers_text(const Stragglers& stragglers) {
  if (stragglers.seconds <= 0) return "";
  std::string text = fmt::format("waits: {:.3f} s in {} collectives, by the rank that came last:\n",
                                 stragglers.seconds, stragglers.collectives);
  for (std::size_t i = 0; i < std::min(stragglers.ranks.size(), kStragglersShown); ++i) {
    const Straggler& each = stragglers.ranks[i];
    text += fmt::format("  rank {}: {:.1f} %, last {}\n", each.rank, 100 * each.share,
                        counted(each.last, "time"));
  }
  return text;
}

nlohmann::ordered_json collectives_json(const std::vector<FlightState::Collective>& all) {
  auto json = nlohmann::ordered_json::array();
  for (const FlightState::Collective& each : all) {
    json.push_back({{"name", each.name},
                    {"group", each.group},
                    {"ranks", each.ranks.all()},
                    {"number", each.number},
                    {"bytes", each.bytes},
                    {"enqueued", each.enqueued},
                    {"started", each.started},
                    {"ended", each.ended}});
  }
  return json;
}

nlohmann::ordered_json rank_json(const FlightState& state) {
  return {{"rank", state.rank},
          {"host", state.host},
          {"process", state.process},
          {"process_state", state.process_state},
          {"step", state.step},
          {"mean_step_seconds", state.mean_step_seconds},
          {"phase", state.phase},
          {"compute", state.compute},
          {"changed", state.changed},
          {"disk_calls", {{"begun", state.disk_calls.begun}, {"ended", state.disk_calls.ended}}},
          {"over", state.over},
          {"open", collectives_json(state.open)},
          {"last", collectives_json(state.last)},
          {"last_words", state.last_words.text},
          {"own_error", state.last_words.own_error},
          {"last_words_time", state.last_words_time},
          {"stack", state.stack}};
}

}  // namespace

bool Examination::ended_well() const {
  return (newest_checkpoint || !ranks.empty()) &&
         std::ranges::all_of(ranks, [](const FlightState& state) {
           return state.over && !is_own_error(state.last_words);
         });
}

Examination examine(const std::string& folder) {
  Examination found{.folder = folder};
  const std::vector<std::string> paths = find_files(found.folder);
  if (paths.empty()) {
    found.newest_checkpoint = newest_checkpoint(found.folder);
    return found;
  }
  const std::vector<int> half_made = read_files(paths, found);
  if (found.files.empty()) {
    ZERO_CHECK(found.problems.empty(), "{}", found.problems.front());
    found.not_begun = half_made;
    return found;
  }
  std::ranges::stable_sort(found.files, {}, &FlightReader::rank);
  for (const FlightReader& file : found.files) found.ranks.push_back(file.read());
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
  for (int rank = 0; rank < found.ranks.front().world; ++rank) {
    if (std::ranges::binary_search(found.ranks, rank, {}, &FlightState::rank)) continue;
    const bool made = !std::ranges::binary_search(half_made, rank);
    (made ? found.missing : found.not_begun).push_back(rank);
  }
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

std::string text_of(const Examination& examination) {
  const std::vector<FlightState>& ranks = examination.ranks;
  if (const auto& step = examination.newest_checkpoint) {
    return fmt::format(
        "{}: no flight files beside checkpoints, the newest of step {}: the last run here ended "
        "well (unless run.flight_folder was another folder)\n",
        examination.folder, *step);
  }
  const std::string not_begun = not_begun_text(examination.not_begun);
  if (ranks.empty()) return fmt::format("{}: {}", examination.folder, not_begun);
  std::string text = fmt::format("{}: {} of {} ranks, {}\n", examination.folder, ranks.size(),
                                 ranks.front().world, steps_text(ranks)) +
                     not_begun;
  for (const std::string& problem : examination.problems) text += problem + "\n";
  if (!examination.missing.empty()) {
    text += fmt::format(
        "{} of {} files are missing or cannot be read: nothing can be said of {}; copy the files "
        "of all hosts here (a rank that ends in good order removes its own)\n",
        examination.missing.size(), ranks.front().world, ranks_text(examination.missing));
  }
  text += last_words_text(ranks);
  if (examination.ended_well()) {
    text += "all ranks with a file here have ended in good order\n";
  } else if (examination.goes_on && examination.diagnosis.what == Diagnosis::What::nothing &&
             examination.diagnosis.lines.empty()) {
    text += "the run goes on: no rank has waited for long\n";
  }
  if (!examination.is_told) {
    for (const std::string& line : examination.diagnosis.lines) text += line + "\n";
  }
  return text + stragglers_text(examination.stragglers);
}

nlohmann::ordered_json json_of(const Examination& examination) {
  const Diagnosis& diagnosis = examination.diagnosis;
  const std::vector<FlightState>& ranks = examination.ranks;
  nlohmann::ordered_json run;  // null without files
  nlohmann::ordered_json newest;
  if (!ranks.empty()) run = fmt::format("{:016x}", ranks.front().run);
  if (examination.newest_checkpoint) newest = *examination.newest_checkpoint;
  nlohmann::ordered_json json{{"folder", examination.folder},
                              {"newest_checkpoint", newest},
                              {"run", run},
                              {"world", ranks.empty() ? 0 : ranks.front().world},
                              {"goes_on", examination.goes_on},
                              {"ended_well", examination.ended_well()},
                              {"not_begun", examination.not_begun},
                              {"missing", examination.missing},
                              {"problems", examination.problems},
                              {"fault",
                               {{"what", name_of(diagnosis.what)},
                                {"culprits", diagnosis.culprits},
                                {"waited_seconds", diagnosis.waited_seconds},
                                {"lines", diagnosis.lines}}}};
  auto stragglers = nlohmann::ordered_json::array();
  for (const Straggler& each : examination.stragglers.ranks) {
    stragglers.push_back({{"rank", each.rank},
                          {"last", each.last},
                          {"seconds", each.seconds},
                          {"share", each.share}});
  }
  json["stragglers"] = std::move(stragglers);
  auto states = nlohmann::ordered_json::array();
  for (const FlightState& state : ranks) states.push_back(rank_json(state));
  json["ranks"] = std::move(states);
  return json;
}

}  // namespace zero
