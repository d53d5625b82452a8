// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "launch/process/signals.h"

namespace zero {

/// The bit of a sum of votes that is DataCheck's. One rank adds it.
inline constexpr std::int64_t kDataVote = std::int64_t{1} << 62;

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
class StopVotes {
 public:
  using Time = Signals::Time;
  struct Options {
    Signals* signals = nullptr;  ///< null: none arrive
    bool first_rank = false;     ///< whose clock counts
    Time started{};              ///< of the program
    double save_seconds = 0;     ///< between two checkpoints; 0: no checkpoint for the time
    double stop_seconds = 0;     ///< after `started`; 0: never
  };
  explicit StopVotes(const Options& options);

  /// From now on the first rank's vote is for the end, as if its time were up.
  void end() { ends_ = true; }
  /// This rank's vote at `now`. At most 2^20 votes are summed.
  std::int64_t vote(Time now);
  /// The decision of the sum; the same on every rank.
  Decision decide(std::int64_t sum, Time now);
  /// A checkpoint is being saved, for whatever reason.
  void saving(Time now) { saved_ = now; }

 private:
  Options options_;
  Time saved_;
  bool ends_ = false;
  // A launcher delivers one SIGUSR1 to the ranks at different times. A rank that hears of it within
  // kOneRequest after the others' votes have decided asks for no second save.
  std::int64_t answered_ = 0;  // of this process's SIGUSR1s
  bool voted_ = false;         // this rank's SIGUSR1 is in the last vote
  std::optional<Time> decided_by_others_{};
};

}  // namespace zero
