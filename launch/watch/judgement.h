// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "launch/flight/flight_state.h"
#include "launch/watch/diagnosis.h"

namespace zero {

/// What is there to judge a run by once somebody asks.
struct Evidence {
  std::vector<FlightState> ranks{};  ///< by rank; not all ended in good order
  std::vector<int> missing{};        ///< ranks of which nothing is known, ascending
  std::vector<RankDeath> deaths{};   ///< of processes that are gone while others go on
  bool goes_on = false;              ///< some process of the run is there
};

struct Judgement {
  Diagnosis diagnosis{};
  bool is_told = false;  ///< it is among the ranks' last words
};

/// The fault of a run, by the first of these that tells of one: errors that ranks told of; what
/// watchdogs found; the ranks' positions.
Judgement judge(const Evidence& evidence);

}  // namespace zero
