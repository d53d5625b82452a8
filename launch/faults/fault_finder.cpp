// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/faults/fault_finder.h"

#include <algorithm>
#include <map>
#include <set>

#include "collectives/long_wait.h"
#include "launch/faults/wait_graph.h"

namespace zero {
namespace {

/// The part of the limit up to which a wait is not looked into.
constexpr std::int64_t kUnsuspicious = 4;

std::int64_t to_nanoseconds(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

/// Whether steps of the rank take a known time where it is.
bool has_usual_time(const FlightState& state) {
  return state.mean_step_seconds > 0 && (state.phase == "forward" || state.phase == "backward" ||
                                         state.phase == "update" || state.phase == "decode");
}

}  // namespace

Blame find_blame(std::span<const FlightState> ranks) {
  const WaitGraph waits(ranks);
  std::map<int, std::vector<int>> answers = waits.absent();
  for (const Wait& meeting : waits.meetings()) {  // these wait for nobody in particular
    for (const int rank : meeting.ranks) answers.try_emplace(rank);
  }
  std::set<int> blamed;
  for (const auto& [rank, absent] : waits.absent()) {
    for (const int each : ranks_to_blame(absent, answers, rank)) blamed.insert(each);
  }
  Blame blame;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const int rank = ranks[i].rank;
    if (blamed.erase(rank) > 0 && !ranks[i].over) blame.blamed.push_back(static_cast<int>(i));
    if (answers.contains(rank)) blame.inside.push_back(static_cast<int>(i));
  }
  blame.elsewhere = !blamed.empty();
  return blame;
}

bool has_told(std::string_view last_words) {
  return !last_words.empty() && !last_words.starts_with(kEndedBySignal);
}

std::string death_text(std::string_view last_words, std::optional<std::int64_t> kills_before,
                       std::optional<std::int64_t> kills_now) {
  if (!last_words.empty()) return std::string(last_words);
  if (kills_before && kills_now && *kills_now > *kills_before) {
    return "ended by the kernel's out-of-memory killer";
  }
  return "ended without a word: by SIGKILL, a crash or the like";
}

double hang_limit(double mean_step_seconds) { return std::max(3.0, 5 * mean_step_seconds); }

FaultFinder::FaultFinder(const HostRanks& ranks, double hang_seconds)
    : ranks_(ranks),
      hang_seconds_(hang_seconds),
      watched_(static_cast<std::size_t>(ranks.count())) {}

Finding FaultFinder::look(std::int64_t now) {
  const std::int64_t passed =
      looked_ ? std::clamp<std::int64_t>(now - *looked_, 0, 2 * kBetweenLooks) : 0;
  looked_ = now;
  count(passed);
  Finding found = find_deaths(passed);
  if (found.what == Finding::What::nothing) found = find_hangs(passed);
  return found;
}

void FaultFinder::count(std::int64_t passed) {
  for (int i = 0; i < ranks_.count(); ++i) {
    const std::int64_t changed = ranks_.changed(i);
    if (changed == at(i).changed) {
      at(i).quiet += passed;
    } else {
      at(i).changed = changed;
      at(i).quiet = 0;
      forget(i);
    }
  }
}

void FaultFinder::forget(int index) {
  at(index).held = 0;
  at(index).cpu.reset();
}

Finding FaultFinder::find_deaths(std::int64_t passed) {
  Finding found;
  for (int i = 0; i < ranks_.count(); ++i) {
    if (i == ranks_.self() || at(i).left || !ranks_.ended(i)) continue;
    const FlightState state = ranks_.read(i);
    at(i).left = state.over;
    if (state.over) continue;
    if (has_told(state.last_words)) return {.what = Finding::What::told, .culprits = {i}};
    found.culprits.push_back(i);
  }
  if (found.culprits.empty()) return found;
  found.what = Finding::What::death;
  since_death_ += passed;
  found.speaks = since_death_ >= kForSpeaker || first_that_lives();
  return found;
}

/// Ranks below that have left say nothing any more.
bool FaultFinder::first_that_lives() const {
  for (int i = 0; i < ranks_.self(); ++i) {
    if (watched_[static_cast<std::size_t>(i)].left || ranks_.ended(i)) continue;
    const auto activity = ranks_.activity(i);
    if (activity && activity->stopped) continue;
    if (!ranks_.read(i).over) return false;
  }
  return true;
}

std::int64_t FaultFinder::suspicious() const {
  return to_nanoseconds(hang_seconds_ > 0 ? hang_seconds_ : hang_limit(0)) / kUnsuspicious;
}

bool FaultFinder::hold(int index, std::int64_t passed) {
  const auto activity = ranks_.activity(index);
  Watched& one = at(index);
  // What came before was not looked into, and others may not have waited yet.
  if (one.held == 0) one.held = std::min(one.quiet - passed, suspicious());
  if (!activity) {
    one.held += passed;
    return false;
  }
  const std::int64_t ran = one.cpu ? activity->cpu - *one.cpu : 0;
  one.cpu = activity->cpu;
  one.held += activity->runnable ? std::clamp<std::int64_t>(ran, 0, passed) : passed;
  return activity->stopped;
}

Finding FaultFinder::find_hangs(std::int64_t passed) {
  Finding found;
  const std::int64_t shortest = suspicious();
  if (std::ranges::none_of(watched_, [&](const Watched& one) { return one.quiet >= shortest; })) {
    return found;
  }
  std::vector<FlightState> states;
  double mean = 0;
  for (int i = 0; i < ranks_.count(); ++i) {
    states.push_back(ranks_.read(i));
    mean = std::max(mean, states.back().mean_step_seconds);
  }
  const std::int64_t limit = to_nanoseconds(hang_seconds_ > 0 ? hang_seconds_ : hang_limit(mean));
  const Blame blame = find_blame(states);
  const auto among = [](const std::vector<int>& some, int i) {
    return std::ranges::find(some, i) != some.end();
  };
  const bool decides = !blame.inside.empty() && first_that_lives();
  for (int i = 0; i < ranks_.count(); ++i) {
    const FlightState& state = states[static_cast<std::size_t>(i)];
    const bool blamed = among(blame.blamed, i);
    const bool may_be_stopped = blame.blamed.empty() && !state.over;
    const bool examined = decides || (blamed && i == ranks_.self());
    if (at(i).quiet < shortest || !(blamed || may_be_stopped) || !examined) {
      forget(i);
      continue;
    }
    const bool stopped = hold(i, passed);
    if (blamed && i == ranks_.self()) {
      const std::int64_t time = has_usual_time(state) ? at(i).held : at(i).quiet;
      found.self_suspected = time >= limit / 2;
    }
    if (!stopped && !((blamed || among(blame.inside, i)) && has_usual_time(state))) {
      forget(i);
      continue;
    }
    if (!decides || at(i).held < limit || !(blamed || stopped)) continue;
    found.culprits.push_back(i);
    if (stopped) found.stopped.push_back(i);
  }
  const bool all_stuck =
      decides && blame.blamed.empty() && !blame.elsewhere &&
      std::ranges::all_of(blame.inside, [&](int i) { return at(i).held >= limit; });
  if (found.culprits.empty() && !all_stuck) return found;
  found.what = Finding::What::hang;
  found.speaks = true;
  return found;
}

}  // namespace zero
