// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launch/flight/flight_reader.h"
#include "launch/watch/fault_finder.h"

namespace zero::testing {

inline constexpr std::int64_t kSecond = 1'000'000'000;

/// The ranks of a group of the same name, in its collective of this number.
inline FlightState::Collective collective(std::uint64_t number, std::vector<int> ranks,
                                          const std::string& group = "shard") {
  return {.name = "all_gather(h.0)",
          .group = group,
          .ranks = std::move(ranks),
          .number = number,
          .enqueued = 1,
          .started = 2};
}

/// Four ranks of a host in the middle of a step, of which one takes half a second, as rank `self`
/// sees them. None does anything unless a test has it publish something.
class FakeRanks : public VisibleRanks {
 public:
  explicit FakeRanks(int self = 0) : self_(self) {
    for (int rank = 0; rank < 4; ++rank) {
      FlightState state;
      state.rank = rank;
      state.world = 4;
      state.mean_step_seconds = 0.5;
      state.phase = "backward";
      states_.push_back(state);
    }
  }
  int count() const override { return 4; }
  int rank(int index) const override { return index; }
  int self() const override { return self_; }
  std::int64_t changed(int index) const override { return at(index).changed; }
  FlightState read(int index) const override { return at(index); }
  bool ended(int index) const override { return ended_.contains(index); }
  const FlightReader* file(int index) const override {
    const auto found = files_.find(index);
    return found == files_.end() ? nullptr : found->second;
  }
  std::optional<host::Activity> activity(int index) const override {
    ++examined_;
    if (unknown_.contains(index)) return std::nullopt;
    const auto found = activities_.find(index);
    return found == activities_.end() ? host::Activity{} : found->second;
  }

  int host_of(int index) const override { return hosts_[static_cast<std::size_t>(index)]; }
  bool is_silent(int index) const override { return silent_.contains(host_of(index)); }
  bool is_cut_off(int index) const override { return cut_off_.contains(host_of(index)); }
  bool decides_for_all() const override { return decides_; }

  /// The hosts of the ranks, those of one together, this rank's first; and whether this one decides
  /// for all.
  void spread(std::vector<int> hosts, bool decides) {
    hosts_ = std::move(hosts);
    decides_ = decides;
  }
  void silence(int host) {
    silent_.insert(host);
    for (int i = 3; i >= 0; --i) {
      if (host_of(i) == host) activity_of(i).stopped = i == 0 || host_of(i - 1) != host;
    }
  }

  void lose(int host) {
    silence(host);
    cut_off_.insert(host);
  }
  void find_again(int host) {
    silent_.erase(host);
    cut_off_.erase(host);
    for (int i = 0; i < 4; ++i) {
      if (host_of(i) == host) activity_of(i).stopped = false;
    }
  }

  FlightState& at(int index) { return states_[static_cast<std::size_t>(index)]; }
  const FlightState& at(int index) const { return states_[static_cast<std::size_t>(index)]; }
  void end(int index) { ended_.insert(index); }
  /// The rank is as its flight file says.
  void show(int index, const FlightReader& file) {
    at(index) = file.read();
    files_[index] = &file;
  }
  host::Activity& activity_of(int index) {
    unknown_.erase(index);
    return activities_[index];
  }
  /// What the rank's process does is not known, until a test says so.
  void forget_activity_of(int index) { unknown_.insert(index); }
  int examined() const { return examined_; }

  /// Ranks 0, 1 and 3 are in a collective that rank 2 has not come to; all are quiet.
  void wait_for_2() {
    for (const int index : {0, 1, 3}) at(index).open = {collective(5, {0, 1, 2, 3})};
    at(2).last = {collective(4, {0, 1, 2, 3})};
  }
  /// The same where a disk decides how long they wait; no step has been timed.
  void wait_for_2_and_its_disk(const std::string& phase) {
    wait_for_2();
    for (FlightState& state : states_) {
      state.phase = phase;
      state.mean_step_seconds = 0;
      for (FlightState::Collective& each : state.open) each.disk_decides = true;
    }
  }

 private:
  int self_;
  std::vector<FlightState> states_{};
  std::set<int> ended_{};
  std::map<int, host::Activity> activities_{};
  std::set<int> unknown_{};
  std::map<int, const FlightReader*> files_{};
  std::vector<int> hosts_{0, 0, 0, 0};
  std::set<int> silent_{};
  std::set<int> cut_off_{};
  bool decides_ = true;
  mutable int examined_ = 0;
};

/// A finder that looks as often as it should.
class Looks {
 public:
  explicit Looks(FakeRanks& ranks, double hang_seconds = 0) : finder_(ranks, hang_seconds) {}

  Finding once(std::int64_t later = FaultFinder::kBetweenLooks) {
    now_ += later;
    return finder_.look(now_);
  }
  /// Looks for so long, or until something is found; `between` runs before each look.
  template <typename Between>
  Finding during(double seconds, const Between& between) {
    Finding found;
    const std::int64_t end = now_ + static_cast<std::int64_t>(seconds * 1e9);
    while (now_ < end && found.what == Finding::What::nothing) {
      between();
      found = once();
      suspected_ = suspected_ || found.self_suspected;
    }
    return found;
  }
  Finding during(double seconds) {
    return during(seconds, [] {});
  }
  bool suspected() const { return suspected_; }

 private:
  FaultFinder finder_;
  std::int64_t now_ = kSecond;
  bool suspected_ = false;
};

}  // namespace zero::testing
