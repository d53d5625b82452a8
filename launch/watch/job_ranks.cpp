// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/job_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/message_text.h"
#include "base/nanoseconds.h"
#include "launch/watch/fault_finder.h"
#include "launch/watch/last_words.h"

namespace zero {
namespace {

/// A host that has said nothing for so long is silent; the others miss five of its heartbeats.
constexpr std::int64_t kSilent = 1'000'000'000;
/// While ranks go on, every fifth heartbeat has their states.
constexpr std::int64_t kBetweenStates = 5;

}  // namespace

bool JobRanks::Other::is_cut_off() const {
  if (has_left()) return false;
  return loss == PeerLoss::unreachable || (loss == PeerLoss::reset && silence >= kSilent);
}

bool JobRanks::Other::is_silent() const {
  return is_cut_off() || (!has_left() && silence >= kSilent);
}

/// Behind its first rank's name.
std::string JobRanks::Other::failed_text() const {
  if (loss == PeerLoss::reset) {
    return fmt::format(
        "does not answer: the connection to its host ({}) was reset, and has not come back; the "
        "process has ended, or the host or its network has failed",
        ranks_text(ranks));
  }
  return fmt::format(
      "does not answer, and neither does its host ({}): the host or its network has failed",
      ranks_text(ranks));
}

JobRanks::JobRanks(const VisibleRanks& here, const HeartbeatLink* link, double hang_seconds)
    : here_(here),
      link_(link),
      suspicious_(suspicious_wait(hang_seconds)),
      count_(here.count()),
      shown_(static_cast<std::size_t>(here.count())) {
  if (link == nullptr) return;
  host_ = link->host();
  for (const int host : link->heard_hosts()) {
    Other other{.host = host, .ranks = link->hosts().ranks_of(host), .first = count_};
    for (const int rank : other.ranks) {
      FlightState state;
      state.rank = rank;
      state.world = link->hosts().ranks();
      other.states.push_back(std::move(state));
    }
    count_ += static_cast<int>(other.ranks.size());
    others_.push_back(std::move(other));
  }
}

void JobRanks::hear(Other& other, const HeartbeatLink::Heard& heard, std::int64_t now) {
  other.loss = heard.loss;
  if (heard.heartbeat == other.heartbeat) return;
  other.heartbeat = heard.heartbeat;
  other.silence = 0;
  for (std::size_t i = 0; i < other.states.size(); ++i) {
    const auto& state = other.heartbeat->ranks[i].state;
    if (!state) continue;
    other.states[i] = *state;
    other.states[i].seen = other.heartbeat->now;
    other.states[i].move_clock(now - other.heartbeat->now);
    for (auto* const some : {&other.states[i].open, &other.states[i].last}) {
      for (auto& each : *some) each.ranks = *rank_lists_.insert(each.ranks).first;
    }
  }
}

void JobRanks::look(std::int64_t now) {
  const std::scoped_lock lock(mutex_);
  const std::int64_t passed = FaultFinder::counted_since(looked_, now);
  for (Other& other : others_) {
    other.silence += passed;
    hear(other, link_->heard(other.host), now);
  }
}

Heartbeat JobRanks::heartbeat(std::int64_t now, bool in_a_hurry) {
  Heartbeat beat{.now = now};
  bool is_quiet = false;
  for (int i = 0; i < here_.count(); ++i) {
    Shown& shown = shown_[static_cast<std::size_t>(i)];
    beat.ranks.push_back({.changed = here_.changed(i)});
    if (std::exchange(shown.changed, beat.ranks.back().changed) != beat.ranks.back().changed) {
      shown.since = now;
    }
    const std::int64_t quiet = now - shown.since;
    const bool may_loop = quiet > 0 && is_between_passes(here_.read(i));
    is_quiet = is_quiet || may_loop || quiet >= suspicious_ / 2;
    if (may_loop || quiet >= suspicious_) beat.ranks.back().activity = here_.activity(i);
  }
  if (heartbeats_++ % kBetweenStates != 0 && !is_quiet && !in_a_hurry) return beat;
  for (int i = 0; i < here_.count(); ++i) {
    beat.ranks[static_cast<std::size_t>(i)].state = here_.read(i);
  }
  return beat;
}

const JobRanks::Other& JobRanks::other_of(int index) const {
  return *std::prev(std::ranges::upper_bound(others_, index, {}, &Other::first));
}

int JobRanks::rank(int index) const {
  if (is_here(index)) return here_.rank(index);
  const Other& other = other_of(index);
  return other.ranks[static_cast<std::size_t>(index - other.first)];
}

int JobRanks::host_of(int index) const { return is_here(index) ? host_ : other_of(index).host; }

std::int64_t JobRanks::changed(int index) const {
  if (is_here(index)) return here_.changed(index);
  const std::scoped_lock lock(mutex_);
  const Other& other = other_of(index);
  if (!other.heartbeat) return 0;
  return other.heartbeat->ranks[static_cast<std::size_t>(index - other.first)].changed;
}

FlightState JobRanks::read(int index) const {
  if (is_here(index)) return here_.read(index);
  const std::scoped_lock lock(mutex_);
  const Other& other = other_of(index);
  FlightState state = other.states[static_cast<std::size_t>(index - other.first)];
  state.over = state.over || other.has_left();
  if (other.is_silent() && index == other.first) {
    state.process_state =
        other.is_cut_off()
            ? other.failed_text()
            : fmt::format("has given no sign of life for {}: it is stopped, or its host hangs",
                          wait_text(to_seconds(other.silence)));
  }
  return state;
}

bool JobRanks::ended(int index) const {
  if (is_here(index)) return here_.ended(index);
  const std::scoped_lock lock(mutex_);
  const Other& other = other_of(index);
  return index == other.first && other.loss == PeerLoss::ended && !other.has_left();
}

std::string JobRanks::end_of(int index, std::optional<std::int64_t> kills_before,
                             std::optional<std::int64_t> kills_now) const {
  if (is_here(index)) {
    const auto activity = here_.activity(index);
    if (activity && activity->dumps_core) return "has crashed: it writes a core dump";
    return death_text(here_.read(index).last_words.text, kills_before, kills_now);
  }
  const std::scoped_lock lock(mutex_);
  const Other& other = other_of(index);
  const std::string silence = other.is_silent() ? fmt::format(", {} after its last sign of life",
                                                              wait_text(to_seconds(other.silence)))
                                                : "";
  if (other.is_cut_off()) return other.failed_text();
  return death_text(other.states.front().last_words.text, {}, {}) + silence;
}

std::optional<host::Activity> JobRanks::activity(int index) const {
  if (is_here(index)) return here_.activity(index);
  const std::scoped_lock lock(mutex_);
  const Other& other = other_of(index);
  if (other.is_silent() && index == other.first) return host::Activity{.stopped = true};
  if (!other.heartbeat) return std::nullopt;
  return other.heartbeat->ranks[static_cast<std::size_t>(index - other.first)].activity;
}

bool JobRanks::any_cut_off() const {
  const std::scoped_lock lock(mutex_);
  return std::ranges::any_of(others_, &Other::is_cut_off);
}

bool JobRanks::is_elsewhere(int index, bool (Other::*so)() const) const {
  if (is_here(index)) return false;
  const std::scoped_lock lock(mutex_);
  return (other_of(index).*so)();
}

}  // namespace zero
