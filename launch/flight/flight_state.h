// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "files/disk_calls.h"
#include "launch/flight/rank_list.h"

namespace zero {

/// What is wrong with a run, as a watchdog or the doctor finds it.
enum class FoundFault : std::uint8_t { nothing, death, error, hang, mismatch };

/// What a rank leaves when it ends: for people, and for the ranks that live.
struct LastWords {
  /// Why the rank ends. Flight files and heartbeats have the numbers.
  enum class Kind : std::uint8_t {
    none,       ///< it does not end, or had no time for words
    own_error,  ///< an error of its own, of which it has not told; no text
    signal,     ///< a signal, of which others are to tell
    // Told of, by this rank or another, or about to be.
    told_signal,     ///< a signal
    error,           ///< an error: of its own, or of a collective
    follower,        ///< others have ended
    finding,         ///< all ranks were judged while they lived: by its watchdog, or by their calls
    signal_finding,  ///< the same; a signal has ended one of the culprits
  };
  static constexpr Kind kLastKind = Kind::signal_finding;

  Kind kind = Kind::none;
  std::string text{};  ///< for people: a sentence, or the lines of a finding
  /// The message of an error of the rank's own that another fault's end has outrun: nobody has told
  /// it. Empty: none.
  std::string own_error{};
  // Of a finding.
  FoundFault what = FoundFault::nothing;
  std::vector<int> culprits{};  ///< world ranks, ascending
  double waited_seconds = 0;    ///< the longest wait for a culprit

  /// Whether no other rank has to tell people of the end.
  bool is_told() const { return kind > Kind::signal; }
  /// Whether a signal has ended the rank, or one of which it tells.
  bool is_of_signal() const {
    return kind == Kind::signal || kind == Kind::told_signal || kind == Kind::signal_finding;
  }
  /// Whether they say more than that others have ended.
  bool says_why() const { return !text.empty() && kind != Kind::follower; }
  bool operator==(const LastWords&) const = default;
};

/// A rank as its flight file shows it at one moment. Times: nanoseconds of CLOCK_MONOTONIC of the
/// rank's host, or of the reader's.
struct FlightState {
  struct Collective {
    std::string name{};        ///< "reduce_scatter(h.7)"
    std::string group{};       ///< "shard": an axis or a part of it; empty: nobody has named it
    RankList ranks{};          ///< world ranks of the group, in its order; empty: unknown
    std::uint64_t number = 0;  ///< of the group's collectives, from 1: equal on all its ranks
    std::int64_t bytes = 0;    ///< over all slices
    std::int64_t enqueued = 0, started = 0, ended = 0;  ///< 0: not yet
    bool disk_decides = false;  ///< by a WaitLimits::disk_phase, when it was submitted
  };

  int rank = 0;
  int world = 1;
  std::uint64_t run = 0;  ///< the same in all files of one run
  std::int64_t process = 0;
  std::string host{};
  std::string boot{};                ///< boot_id() of that host
  std::int64_t step = -1;            ///< optimizer step under way; -1: before the first
  double mean_step_seconds = 0;      ///< of the last steps (not the first); 0: unknown
  std::string phase{};               ///< as PhaseListener names it; empty: none yet
  std::string compute{};             ///< last unit of compute: "backward h.7"; empty: none yet
  std::int64_t changed = 0;          ///< when it last published anything
  files::DiskCalls disk_calls{};     ///< of its process, as its watchdog last saw them
  bool over = false;                 ///< ended in good order
  std::vector<Collective> open{};    ///< submitted and not ended, oldest first
  std::vector<Collective> last{};    ///< newest ended one of each group
  std::string stack{};               ///< written when a fault was found; empty: none
  LastWords last_words{};            ///< likewise
  std::int64_t last_words_time = 0;  ///< when the later of these was written; 0: neither
  /// What the system says of the process: "is stopped"; empty: nothing remarkable, or not asked.
  std::string process_state{};
  /// When the rank was like this, as a heartbeat told; 0: its flight file was read.
  std::int64_t seen = 0;

  /// Moves the times to a clock that is `ahead` of theirs. 0 stays, and no other becomes 0 or less.
  void move_clock(std::int64_t ahead) {
    const auto move = [ahead](std::int64_t& time) {
      if (time != 0) time = std::max<std::int64_t>(1, time + ahead);
    };
    move(changed);
    move(seen);
    move(last_words_time);
    for (auto* const some : {&open, &last}) {
      for (Collective& each : *some) {
        move(each.enqueued);
        move(each.started);
        move(each.ended);
      }
    }
  }
};

}  // namespace zero
