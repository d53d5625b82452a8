// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/consecutive.h"
#include "launch/flight/flight_file.h"
#include "launch/flight/flight_state.h"

namespace zero::testing {

/// Where this process finds an open flight file, as others do by its number.
inline std::string own_path(const FlightFile& file) {
  return fmt::format("/proc/self/fd/{}", file.descriptor());
}

/// Seconds of the clock that states made by hand are on.
constexpr std::int64_t clock_at(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

/// The last words of a rank that ends by an error with this message.
inline LastWords error_words(const std::string& message) {
  return {.kind = LastWords::Kind::error, .text = "ended by an error: " + message};
}

/// Of one that SIGTERM ends, and of which others are to tell, unless `kind` says more.
inline LastWords signal_words(LastWords::Kind kind = LastWords::Kind::signal) {
  return {.kind = kind, .text = "ended by SIGTERM"};
}

/// Of one that ends because another has told.
inline LastWords follower_words(
    std::string text = "ended because rank 0 told of a fault and ended") {
  return {.kind = LastWords::Kind::follower, .text = std::move(text)};
}

/// Of one whose watchdog has told of a hang.
inline LastWords finding_words() {
  return {.kind = LastWords::Kind::finding,
          .text = "rank 1 hangs",
          .what = FoundFault::hang,
          .culprits = {1, 3, 6},
          .waited_seconds = 3.25};
}

/// Of one with an error that another fault has outrun.
inline LastWords outrun_words(std::string message) {
  return {.kind = LastWords::Kind::own_error, .own_error = std::move(message)};
}

/// A state made by hand: in backward of step 812.
class StateMaker {
 public:
  explicit StateMaker(int rank, int world = 8) {
    state_.rank = rank;
    state_.world = world;
    state_.step = 812;
    state_.phase = "backward";
    state_.compute = "backward h.7";
    state_.changed = clock_at(100);
  }
  StateMaker& step(std::int64_t step) {
    state_.step = step;
    return *this;
  }
  StateMaker& changed(double seconds) {
    state_.changed = clock_at(seconds);
    return *this;
  }
  /// A collective that has started and not ended.
  StateMaker& in(std::string name, std::uint64_t number, double since, std::string group = "shard",
                 std::vector<int> ranks = {}) {
    state_.open.push_back(made(std::move(name), number, std::move(group), std::move(ranks)));
    state_.open.back().started = clock_at(since);
    return *this;
  }
  /// One that its stream has not come to.
  StateMaker& submitted(std::string name, std::uint64_t number, std::string group = "shard",
                        std::vector<int> ranks = {}) {
    state_.open.push_back(made(std::move(name), number, std::move(group), std::move(ranks)));
    return *this;
  }
  StateMaker& ended(std::string name, std::uint64_t number, double when,
                    std::string group = "shard", std::vector<int> ranks = {}) {
    state_.last.push_back(made(std::move(name), number, std::move(group), std::move(ranks)));
    state_.last.back().started = state_.last.back().ended = clock_at(when);
    return *this;
  }
  StateMaker& bytes(std::int64_t bytes) {
    state_.open.back().bytes = bytes;
    return *this;
  }
  StateMaker& stopped() {
    state_.process_state = "is stopped (a signal or a debugger)";
    return *this;
  }
  /// As a heartbeat told.
  StateMaker& seen(double seconds) {
    state_.seen = clock_at(seconds);
    return *this;
  }
  StateMaker& over() {
    state_.over = true;
    return *this;
  }
  StateMaker& stack(std::string text) {
    state_.stack = std::move(text);
    return *this;
  }
  operator FlightState() const { return state_; }  // NOLINT(google-explicit-constructor)

 private:
  FlightState::Collective made(std::string name, std::uint64_t number, std::string group,
                               std::vector<int> ranks) const {
    if (ranks.empty()) ranks = consecutive(0, state_.world);
    return {.name = std::move(name),
            .group = std::move(group),
            .ranks = std::move(ranks),
            .number = number,
            .enqueued = clock_at(1)};
  }

  FlightState state_{};
};

}  // namespace zero::testing
