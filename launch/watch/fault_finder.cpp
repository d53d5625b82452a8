// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/fault_finder.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/consecutive.h"
#include "base/nanoseconds.h"
#include "launch/watch/wait_graph.h"

namespace zero {
namespace {

/// The part of the limit up to which a wait is not looked into.
constexpr double kUnsuspicious = 4;

enum class GroupRanks : std::uint8_t { known, unknown };

/// Whether the rank is in a collective of a group whose ranks are known, or else are not.
bool is_in_collective(const FlightState& state, GroupRanks group) {
  return std::ranges::any_of(state.open, [&](const FlightState::Collective& each) {
    return each.started != 0 && each.ranks.empty() == (group == GroupRanks::unknown);
  });
}

/// Whether the rank is in a collective for which a disk decides how long others take.
bool waits_for_disks(const FlightState& state) {
  return std::ranges::any_of(state.open, [](const FlightState::Collective& each) {
    return each.started != 0 && each.disk_decides;
  });
}

/// Whether steps of the rank take a known time where it is.
bool has_usual_time(const FlightState& state) {
  return state.mean_step_seconds > 0 &&
         (state.phase == "forward" || state.phase == "backward" || state.phase == "update" ||
          state.phase == "validation" || state.phase == "decode");
}

/// Whether the rank is in a pass of the model, or says nothing of where it is.
bool is_pass(const FlightState& state) {
  constexpr std::array<std::string_view, 9> kPasses = {"",       "forward",          "backward",
                                                       "update", "first validation", "validation",
                                                       "draft",  "prefill",          "decode"};
  return std::ranges::find(kPasses, state.phase) != kPasses.end();
}

/// Whether the rank may compute for long where it is, without a sign of life: a first step or
/// validation runs units of any size, a prompt is of any length, and of a rank without phases
/// nothing is known.
bool may_compute(const FlightState& state) { return !has_usual_time(state) && is_pass(state); }

/// Whether the rank may be waited for so; within a step too, where a save fails or is given up.
/// Elsewhere others wait behind its computing, or behind the reader of what it prints.
bool may_use_disk(const FlightState& state) {
  return is_disk_phase(state.phase) || has_usual_time(state);
}

}  // namespace

Blame find_blame(std::span<const FlightState> ranks) {
  const WaitGraph waits(ranks);
  const std::vector<int> blamed = waits.blamed();
  Blame blame;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const FlightState& state = ranks[i];
    const bool is_blamed = std::ranges::binary_search(blamed, state.rank);
    if (is_blamed && !state.over) blame.blamed.push_back(static_cast<int>(i));
    if (is_in_collective(state, GroupRanks::known)) blame.inside.push_back(static_cast<int>(i));
  }
  blame.elsewhere =
      std::ranges::any_of(blamed, [&](int rank) { return waits.state_of(rank) == nullptr; });
  return blame;
}

bool is_disk_phase(std::string_view phase) {
  return phase == "load" || phase == "save" || phase == "end";
}

double noticed_within(double mean_step_seconds) { return std::max(3.0, 5 * mean_step_seconds); }

double hang_limit(double mean_step_seconds) {
  return noticed_within(mean_step_seconds) - to_seconds(3 * FaultFinder::kBetweenLooks);
}

std::int64_t suspicious_wait(double hang_seconds) {
  return to_nanoseconds((hang_seconds > 0 ? hang_seconds : hang_limit(0)) / kUnsuspicious);
}

bool is_between_passes(const FlightState& state) { return state.open.empty() && !is_pass(state); }

FaultFinder::FaultFinder(const VisibleRanks& ranks, double hang_seconds)
    : ranks_(ranks),
      hang_seconds_(hang_seconds),
      suspicious_(suspicious_wait(hang_seconds)),
      watched_(static_cast<std::size_t>(ranks.count())) {}

std::int64_t FaultFinder::counted_since(std::optional<std::int64_t>& looked, std::int64_t now) {
  const std::int64_t last = std::exchange(looked, now).value_or(now);
  return std::clamp<std::int64_t>(now - last, 0, 2 * kBetweenLooks);
}

Finding FaultFinder::look(std::int64_t now) {
  const std::int64_t passed = counted_since(looked_, now);
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
  forget_held(index);
  at(index).loop = {};
}

void FaultFinder::forget_held(int index) {
  at(index).held = 0;
  at(index).run_time = {};
}

Finding FaultFinder::find_deaths(std::int64_t passed) {
  Finding found;
  for (int i = 0; i < ranks_.count(); ++i) {
    if (i == ranks_.self() || at(i).left) continue;
    if (!ranks_.ended(i) && !at(i).crashed && !is_of_dead_host(i)) continue;
    const FlightState state = ranks_.read(i);
    at(i).left = state.over;
    if (state.over) continue;
    if (state.last_words.is_told()) return {.what = Finding::What::told, .culprits = {i}};
    found.culprits.push_back(i);
  }
  if (found.culprits.empty()) {
    since_death_ = 0;
    return found;
  }
  found.what = Finding::What::death;
  since_death_ += passed;
  found.speaks = since_death_ >= kForSpeaker || first_that_lives();
  return found;
}

bool FaultFinder::is_of_dead_host(int index) {
  if (!is_first_of_host(index)) return false;
  if (!ranks_.is_cut_off(index)) {
    at(index).lost.reset();
    return false;
  }
  if (!at(index).lost) at(index).lost = looked_;
  bool any = false;
  std::set<int> there;
  for (int i = 0; i < ranks_.count(); ++i) {
    any = any || is_seen_quiet(i, kForLostHost);
    if (ranks_.host_of(i) == ranks_.host_of(index)) there.insert(ranks_.rank(i));
  }
  if (!any) return false;
  const RankSet all = read_all();
  if (!std::ranges::all_of(all.blame.blamed, [&](int i) { return ranks_.is_silent(i); })) {
    return false;
  }
  const auto with_it = [&](const FlightState::Collective& each) {
    return std::ranges::any_of(each.ranks, [&](int rank) { return there.contains(rank); });
  };
  const bool has_gone_on = std::ranges::any_of(all.indices, [&](int i) {
    const auto& last = all.states[static_cast<std::size_t>(i)].last;
    return !ranks_.is_silent(i) && std::ranges::any_of(last, [&](const auto& each) {
      return each.ended > *at(index).lost && with_it(each);
    });
  });
  const std::int64_t limit = has_gone_on ? usual_limit(all) : kForLostHost;
  return std::ranges::any_of(all.blame.inside, [&](int i) {
    const FlightState& state = all.states[static_cast<std::size_t>(i)];
    if (!is_seen_quiet(i, limit) || (has_gone_on && !has_usual_time(state))) return false;
    return std::ranges::any_of(
        state.open, [&](const auto& each) { return each.started != 0 && with_it(each); });
  });
}

/// Ranks below that have left say nothing any more.
bool FaultFinder::first_that_lives() const {
  for (int i = 0; i < ranks_.self(); ++i) {
    if (at(i).left || ranks_.ended(i)) continue;
    const auto activity = ranks_.activity(i);
    if (activity && activity->stopped) continue;
    if (!ranks_.read(i).over) return false;
  }
  return true;
}

bool FaultFinder::calls_disk(int index, const FlightState& state) {
  const files::DiskCalls before = std::exchange(at(index).disk_calls, state.disk_calls);
  return state.disk_calls != before || before.begun != before.ended;
}

void FaultFinder::hold(int index, const std::optional<host::Activity>& activity,
                       std::int64_t passed) {
  Watched& one = at(index);
  // What came before was not looked into, and others may not have waited yet.
  const bool first = one.held == 0 && !one.by_disk;
  if (first) {
    one.held = std::min(one.quiet - passed, suspicious_);
  }
  if (!activity) {
    one.held += passed;
    return;
  }
  const std::int64_t ran = one.run_time.since_last(activity->cpu, passed);
  const std::int64_t counts = activity->runnable && !first ? ran : passed;
  one.run_time.spend(counts);
  one.held += counts;
}

FaultFinder::Rule FaultFinder::rule_for(const FlightState& state, bool stopped,
                                        bool disk_may_decide) {
  if (stopped) return Rule::stopped;
  // Blamed, it is alone in a collective that all others have left: no disk holds it up there.
  if (disk_may_decide && !is_in_collective(state, GroupRanks::known)) {
    const bool alone = !is_in_collective(state, GroupRanks::unknown);
    return alone && may_use_disk(state) ? Rule::disk : Rule::none;
  }
  return has_usual_time(state) ? Rule::step : Rule::none;
}

FaultFinder::RankSet FaultFinder::only(int host, const RankSet& all) const {
  RankSet some;
  for (std::size_t i = 0; i < all.indices.size(); ++i) {
    if (ranks_.host_of(all.indices[i]) != host) continue;
    some.indices.push_back(all.indices[i]);
    some.states.push_back(all.states[i]);
  }
  some.blame = find_blame(some.states);
  return some;
}

std::int64_t FaultFinder::patience_with(int index, bool stopped, const RankSet& all) const {
  const int host = ranks_.host_of(index);
  const RankSet there = only(host, all);
  const bool has_others = there.indices.size() > 1;
  if (ranks_.is_silent(index)) return has_others ? kForSpeaker : 0;
  const bool found_there =
      stopped ? has_others : std::ranges::any_of(there.blame.blamed, [&](int i) {
        return there.indices[static_cast<std::size_t>(i)] == index;
      });
  const bool first = found_there ? host == ranks_.host_of(ranks_.self()) : ranks_.decides_for_all();
  return first ? 0 : kForSpeaker;
}

bool FaultFinder::all_held(const RankSet& ranks, std::int64_t time) const {
  return std::ranges::all_of(ranks.blame.inside, [&](int i) {
    return at(ranks.indices[static_cast<std::size_t>(i)]).held >= time;
  });
}

bool FaultFinder::is_seen_quiet(int index, std::int64_t time) const {
  return !ranks_.is_silent(index) && at(index).quiet >= time;
}

bool FaultFinder::is_first_of_host(int index) const {
  return index == 0 || ranks_.host_of(index - 1) != ranks_.host_of(index);
}

bool FaultFinder::is_stuck(const RankSet& all, std::int64_t limit) const {
  std::set<int> hosts;
  for (const int index : all.indices) hosts.insert(ranks_.host_of(index));
  bool others_tell = !ranks_.decides_for_all();
  for (const int host : hosts) {
    const RankSet one = only(host, all);
    if (!one.is_stuck()) continue;
    if (host != ranks_.host_of(ranks_.self())) {
      others_tell = true;
    } else if (all_held(one, limit)) {
      return true;
    }
  }
  return all.is_stuck() && all_held(all, limit + (others_tell ? kForSpeaker : 0));
}

void FaultFinder::find_culprits(const RankSet& all, std::int64_t passed, std::int64_t usual,
                                Finding& found) {
  const bool decides = !all.blame.inside.empty() && first_that_lives();
  const bool disk_decides = std::ranges::any_of(all.states, waits_for_disks);
  // The evidence begins a look after the first that sees others wait, and ends with a part of one.
  const std::int64_t loop_limit =
      std::max(usual, to_nanoseconds(hang_limit(0))) - 2 * kBetweenLooks;
  for (int i = 0; i < ranks_.count(); ++i) {
    const FlightState& state = all.states[static_cast<std::size_t>(i)];
    const bool silent = ranks_.is_silent(i);
    const bool blamed = std::ranges::binary_search(all.blame.blamed, i);
    const bool may_be_stopped = (all.blame.blamed.empty() || silent) && !state.over;
    const bool examined = decides || (blamed && i == ranks_.self());
    const bool unseen = ranks_.is_cut_off(i) || (silent && !is_first_of_host(i));
    const bool early = at(i).quiet < suspicious_;
    const bool worth = early ? blamed && is_between_passes(state) : blamed || may_be_stopped;
    if (at(i).quiet == 0 || !worth || !examined || unseen) {
      forget(i);
      continue;
    }
    const std::optional<host::Activity> activity = ranks_.activity(i);
    at(i).crashed = activity && activity->dumps_core;
    const bool stopped = activity && activity->stopped;
    const Rule rule = rule_for(state, stopped, blamed && disk_decides);
    const bool by_disk = rule == Rule::disk;
    const bool may_loop =
        blamed && (by_disk || rule == Rule::none) && state.open.empty() && !may_compute(state);
    if (may_loop && activity) {
      at(i).loop.look(*activity, state.disk_calls, passed);
    } else {
      at(i).loop = {};
    }
    if (early) continue;
    const bool calls = calls_disk(i, state);
    const bool uses = calls || (activity && activity->in_device);
    if (std::exchange(at(i).by_disk, by_disk) != by_disk || (by_disk && uses)) forget_held(i);
    if (rule != Rule::step || !blamed || !calls) hold(i, activity, passed);
    const std::int64_t limit =
        by_disk ? std::max(usual, to_nanoseconds(kLeastDiskHangSeconds)) : usual;
    if (blamed && i == ranks_.self()) {
      found.self_suspected = (rule == Rule::none ? at(i).quiet : at(i).held) >= limit / 2 ||
                             at(i).loop.time() >= loop_limit / 2;
    }
    const bool inside = std::ranges::binary_search(all.blame.inside, i);
    if (rule == Rule::none || (rule == Rule::step && !blamed && !inside)) forget_held(i);
    const std::int64_t late = std::max(at(i).held - limit, at(i).loop.time() - loop_limit);
    if (!decides || late < 0 || !(blamed || stopped)) continue;
    const auto waits = [&](int j) { return is_seen_quiet(j, usual); };
    if (silent && std::ranges::none_of(all.blame.inside, waits)) continue;
    if (late < patience_with(i, stopped, all)) continue;
    found.culprits.push_back(i);
    if (stopped) found.stopped.push_back(i);
  }
  if (found.culprits.empty() && !(decides && is_stuck(all, usual))) return;
  found.what = Finding::What::hang;
  found.speaks = true;
}

Finding FaultFinder::find_hangs(std::int64_t passed) {
  Finding found;
  bool any = false;
  for (int i = 0; i < ranks_.count() && !any; ++i) {
    any = at(i).quiet >= suspicious_ || (at(i).quiet > 0 && is_between_passes(ranks_.read(i)));
  }
  if (!any) return found;
  const RankSet all = read_all();
  find_culprits(all, passed, usual_limit(all), found);
  return found;
}

FaultFinder::RankSet FaultFinder::read_all() const {
  RankSet all{.indices = consecutive(0, ranks_.count()), .states = ranks_.read_all()};
  all.blame = find_blame(all.states);
  return all;
}

std::int64_t FaultFinder::usual_limit(const RankSet& all) const {
  double mean = 0;
  for (const FlightState& state : all.states) mean = std::max(mean, state.mean_step_seconds);
  return to_nanoseconds(hang_seconds_ > 0 ? hang_seconds_ : hang_limit(mean));
}

}  // namespace zero
