// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/flight/flight_state.h"

namespace zero {

/// A rank whose process has ended.
struct RankDeath {
  int rank = 0;
  std::string how;  ///< "ended by signal 9 (SIGKILL)"
};

/// The fault that ranks' states show, and its words.
struct Diagnosis {
  using What = FoundFault;

  What what = What::nothing;         ///< `error`: only examine() finds one, by last words
  std::vector<int> culprits{};       ///< world ranks, ascending; may be empty for a hang
  std::vector<std::string> lines{};  ///< as zero_doctor prints them, the culprit's first
  double waited_seconds = 0;         ///< the longest wait for a culprit
};

/// "death"
std::string_view name_of(Diagnosis::What what);
/// "rank 3 has", "ranks 0-2 have".
std::string ranks_have(const std::vector<int>& ranks);

/// Finds who holds up whom at `now`. Pure. Applies no limit of its own: ranks of a run that goes on
/// wait too, for an instant, so ask once a run has made no progress for too long. Ranks may be
/// missing and be in different steps; their states need not be of one moment, but their times must
/// be of one clock (FlightState::move_clock()). `deaths` are the fault if there are any. Ranks of
/// `unknown`, ascending, are not blamed: others wait for them, and nobody can say why.
Diagnosis diagnose(std::span<const FlightState> ranks, std::span<const RankDeath> deaths,
                   std::int64_t now, std::span<const int> unknown = {});

struct LongestWait {
  double seconds = 0;
  int culprit = 0;     ///< the first of those for whom ranks wait
  std::string line{};  ///< empty: no rank waits, or none is to blame
};
/// For whom ranks wait at `now`, how long the first of them has, and where that rank is, in one
/// line: "ranks 0-2 have waited for 14.2 s for rank 3, which is in "backward" of step 12". Ranks
/// without a state count only if no other is to blame. Pure, as diagnose().
LongestWait longest_wait(std::span<const FlightState> ranks, std::int64_t now);

}  // namespace zero
