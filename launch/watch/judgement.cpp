// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/judgement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/message_text.h"
#include "base/nanoseconds.h"
#include "collectives/long_wait.h"
#include "launch/flight/flight_file.h"
#include "launch/watch/fault_finder.h"
#include "launch/watch/last_words.h"

namespace zero {
namespace {

/// The fault of ranks that ended by errors: of one that all ranks know, or of errors of single
/// ranks, for which others then wait.
Diagnosis of_errors(const std::vector<FlightState>& ranks, std::int64_t now) {
  std::map<std::string, std::vector<int>> alike;
  std::vector<RankDeath> alone;
  for (const FlightState& state : ranks) {
    if (!is_own_error(state.last_words)) continue;
    if (state.over) {
      alike[state.last_words.text].push_back(state.rank);
    } else {
      alone.push_back({state.rank, state.last_words.text});
    }
  }
  Diagnosis found;
  if (!alone.empty()) found = diagnose(ranks, alone, now);
  for (const auto& [words, same] : alike) {
    found.lines.push_back(fmt::format("{} {}", ranks_text(same), words));
  }
  found.what = found.lines.empty() ? Diagnosis::What::nothing : Diagnosis::What::error;
  return found;
}

/// What watchdogs found while the ranks lived: all that was told.
Diagnosis of_watchdogs(const std::vector<FlightState>& ranks) {
  Diagnosis all;
  std::set<int> culprits;
  for (const FlightState& state : ranks) {
    const std::optional<Diagnosis> found = diagnosis_in(state.last_words);
    if (!found) continue;
    // Ranks that wait for one that died may look like ranks that hang.
    const bool first = all.what == Diagnosis::What::nothing;
    if (first || found->what == Diagnosis::What::death) all.what = found->what;
    culprits.insert(found->culprits.begin(), found->culprits.end());
    all.waited_seconds = std::max(all.waited_seconds, found->waited_seconds);
    for (const std::string& line : found->lines) {
      if (std::ranges::find(all.lines, line) == all.lines.end()) all.lines.push_back(line);
    }
  }
  all.culprits.assign(culprits.begin(), culprits.end());
  return all;
}

/// The last words of a rank that answered a signal of people or their scheduler; empty: of none.
std::string_view signal_words(const std::vector<FlightState>& ranks) {
  const auto found = std::ranges::find_if(ranks, [](const FlightState& state) {
    const LastWords::Kind kind = state.last_words.kind;
    return kind == LastWords::Kind::signal || kind == LastWords::Kind::told_signal;
  });
  return found == ranks.end() ? "" : std::string_view(found->last_words.text);
}

/// Whether a disk decides how long others wait for the rank, as for FaultFinder: while it loads,
/// saves or ends it is in a call to the disk.
bool is_held_up_by_disk(const FlightState& state) {
  return is_disk_phase(state.phase) && !state.over && state.process_state.empty() &&
         state.disk_calls.begun != state.disk_calls.ended;
}

/// What a run that goes on does where its disk alone holds it up; nothing: something else does.
std::optional<Diagnosis> of_disks(const std::vector<FlightState>& ranks, const Diagnosis& hang) {
  const auto by_disk = [&](int rank) {
    const auto state = std::ranges::find(ranks, rank, &FlightState::rank);
    return state != ranks.end() && is_held_up_by_disk(*state);
  };
  if (hang.culprits.empty() || !std::ranges::all_of(hang.culprits, by_disk)) return std::nullopt;
  const bool one = hang.culprits.size() == 1;
  return Diagnosis{.lines = {fmt::format(
                       "{} {} in a call to the disk, and others have waited for {} for {}; the "
                       "run goes on",
                       ranks_text(hang.culprits), one ? "is" : "are", one ? "it" : "them",
                       wait_text(hang.waited_seconds))}};
}

bool before_first_step(const std::vector<FlightState>& ranks) {
  return std::ranges::all_of(ranks, [](const FlightState& state) { return state.step < 0; });
}

/// Of errors of ranks' own that the end of all ranks has outrun.
Diagnosis of_outrun(const std::vector<FlightState>& ranks) {
  Diagnosis found;
  for (const FlightState& state : ranks) {
    std::string line = own_error_text(state);
    if (line.empty()) continue;
    found.what = Diagnosis::What::error;
    found.culprits.push_back(state.rank);
    found.lines.push_back(std::move(line));
  }
  return found;
}

/// Of ranks that are gone, and have neither waited long enough for a hang nor told of a fault. Open
/// collectives say where they were, and no more.
Diagnosis of_end(const Evidence& found, double waited) {
  if (const std::string_view signal = signal_words(found.ranks); !signal.empty()) {
    return {.lines = {fmt::format("{}{}; no fault", signal,
                                  before_first_step(found.ranks) ? " before the first step" : "")}};
  }
  Diagnosis ended{.what = Diagnosis::What::death, .waited_seconds = waited};
  if (!found.missing.empty()) {
    ended.lines.push_back(fmt::format(
        "no rank with a file here tells of a fault, and none had waited for longer than {}",
        wait_text(waited)));
    return ended;
  }
  const auto [first, last] = std::ranges::minmax(found.ranks, {}, &FlightState::changed);
  ended.lines.push_back(fmt::format(
      "no rank told of a fault: the job was probably ended from outside; all ranks ended within "
      "{} of each other, and none had waited for longer than {}: look at the logs of launcher and "
      "scheduler, and at dmesg (SIGKILL, no memory left, a host that went down)",
      wait_text(to_seconds(last.changed - first.changed)), wait_text(waited)));
  return ended;
}

/// Of ranks that followed one whose file is not here: "ranks 1, 3 have left no last words, ...";
/// empty: none followed, or all left some.
std::string silent_text(const std::vector<FlightState>& ranks) {
  std::vector<int> silent;
  bool followed = false;
  for (const FlightState& state : ranks) {
    followed = followed || state.last_words.kind == LastWords::Kind::follower;
    if (state.last_words == LastWords() && !state.over) silent.push_back(state.rank);
  }
  if (!followed || silent.empty()) return "";
  return fmt::format("{} left no last words, as ranks that follow do: {} may have ended first",
                     ranks_have(silent), silent.size() == 1 ? "it" : "they");
}

}  // namespace

Judgement judge(const Evidence& evidence) {
  using What = Diagnosis::What;
  const std::vector<FlightState>& ranks = evidence.ranks;
  std::int64_t now = 0;
  double mean = 0;
  for (const FlightState& state : ranks) {
    now = std::max({now, state.changed, state.last_words_time});
    mean = std::max(mean, state.mean_step_seconds);
  }
  if (evidence.goes_on) now = std::max(now, FlightFile::now());
  if (Diagnosis errors = of_errors(ranks, now); errors.what != What::nothing) {
    return {.diagnosis = std::move(errors)};
  }
  if (Diagnosis told = of_watchdogs(ranks); told.what != What::nothing) {
    return {.diagnosis = std::move(told), .is_told = true};
  }
  Diagnosis shown = diagnose(ranks, evidence.deaths, now, evidence.missing);
  const bool overdue = std::ranges::any_of(
      ranks, [](const FlightState& state) { return LongWait::is_overdue(state.last_words.text); });
  // Before the first step a rank may load for long, and others wait for it.
  const bool start = before_first_step(ranks) && !signal_words(ranks).empty();
  const bool short_wait = start || shown.waited_seconds < noticed_within(mean);
  if (shown.what == What::hang && short_wait && !overdue) {
    if (evidence.goes_on) return {};
    if (Diagnosis outrun = of_outrun(ranks); outrun.what != What::nothing) {
      return {.diagnosis = std::move(outrun), .is_told = true};
    }
    shown = of_end(evidence, shown.waited_seconds);
  }
  if (shown.what == What::hang && evidence.goes_on && !overdue) {
    if (auto held_up = of_disks(ranks, shown)) shown = std::move(*held_up);
  }
  if (std::string silent = silent_text(ranks);
      shown.what != What::nothing && !evidence.goes_on && !silent.empty()) {
    shown.lines.push_back(std::move(silent));
  }
  return {.diagnosis = std::move(shown)};
}

}  // namespace zero
