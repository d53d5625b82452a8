// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

namespace zero {

/// The signals that this process was sent, and what becomes of them. While ranks listen, SIGUSR1
/// asks for a checkpoint, and the first SIGTERM or SIGINT for a checkpoint and a good end; any
/// other SIGTERM or SIGINT ends the process at once. A SIGUSR1 that comes before waits until ranks
/// listen. Any thread may use it.
class Signals {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Answer {
    bool ends_process = false;
    std::string line{};  ///< for people; empty: none
  };
  /// Called for each signal that arrives at `now`.
  Answer arrived(int signal, Time now);

  /// From here on a rank of this process asks what has arrived. Ranks that are threads of one
  /// process may all call it.
  /// Returns a line for people if SIGUSR1 has come before; else an empty one.
  std::string listen();
  /// No rank ever listens: the run saves nothing. Returns as listen().
  std::string refuse();
  /// From here on none does. Returns the signal that asks for an end, 0 for none: a rank that has
  /// not heard of it ends the process now.
  int stop_listening();

  struct Asked {
    std::int64_t saves = 0;  ///< SIGUSR1s so far
    Time last_save{};        ///< when the last one arrived
    int ending = 0;          ///< SIGTERM, SIGINT or 0
  };
  Asked asked() const;

 private:
  enum class State : std::uint8_t { starting, listening, refusing, ended };

  mutable std::mutex mutex_;
  State state_ = State::starting;
  Asked asked_;
  Time ending_since_{};  // when asked_.ending arrived
};

/// What a run does before its last step because a signal or a clock asks for it.
struct Decision {
  bool save = false;
  bool time_is_up = false;  ///< run.stop_after: save, then end well
  int signal = 0;           ///< SIGTERM or SIGINT: save, then end with 128 + the signal; 0: neither
  bool ends() const { return time_is_up || signal != 0; }
};

/// One rank's part in decisions that all ranks must take after the same step, although each hears
/// signals at a time of its own, and only the first rank reads its clock: each rank gives a vote
/// into a step, and the sum over all ranks decides. Used by one thread.
class Requests {
 public:
  using Time = Signals::Time;
  struct Options {
    Signals* signals = nullptr;  ///< null: none arrive
    bool first_rank = false;     ///< whose clock counts
    Time started{};              ///< of the program
    double save_seconds = 0;     ///< between two checkpoints; 0: no checkpoint for the time
    double stop_seconds = 0;     ///< after `started`; 0: never
  };
  explicit Requests(const Options& options);

  /// This rank's vote at `now`. At most 2^20 votes are summed.
  std::int64_t vote(Time now);
  /// The decision of the sum; the same on every rank.
  Decision decide(std::int64_t sum, Time now);
  /// A checkpoint is being saved, for whatever reason.
  void saving(Time now) { saved_ = now; }

 private:
  Options options_;
  Time saved_;
  // A launcher delivers one SIGUSR1 to the ranks at different times. A rank that hears of it within
  // kOneRequest after the others' votes have decided asks for no second save.
  std::int64_t answered_ = 0;  // of this process's SIGUSR1s
  bool voted_ = false;         // this rank's SIGUSR1 is in the last vote
  std::optional<Time> decided_by_others_{};
};

}  // namespace zero
