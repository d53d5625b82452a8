// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "launch/flight/flight_state.h"

namespace zero {

/// Ranks that are in one collective, and the ranks of its group that have not entered it.
struct Wait {
  FlightState::Collective collective{};  ///< of one of `ranks`
  std::vector<int> ranks{};              ///< ascending
  std::vector<int> absent{};             ///< ascending; empty: all have come
  std::int64_t since = 0;                ///< when the first of `ranks` entered

  /// Whether several ranks are in it, which may wait for each other.
  bool is_shared() const { return ranks.size() > 1; }
};

/// Which ranks wait for which, by their states, which must outlive this object. A rank is in the
/// collectives that have started on its streams and not ended; a rank of the group that is not in
/// one by that number, nor beyond it, is absent; so is one without a state. Ranks of `dead` have
/// entered what their states say, and wait for nothing.
class WaitGraph {
 public:
  explicit WaitGraph(std::span<const FlightState> states, std::span<const int> dead = {});

  /// The waits for absent ranks, the longest first.
  const std::vector<Wait>& all() const { return waits_; }
  /// The collectives that all ranks of their group have entered and some have not left, the longest
  /// first.
  const std::vector<Wait>& unended() const { return unended_; }
  /// The ranks that wait for others, ascending.
  std::vector<int> waiting() const;
  /// The ranks that hold up others, ascending. A rank that waits is not to blame, nor one of
  /// several in a collective that all have entered. A rank without a state may be.
  std::vector<int> blamed() const;
  /// Null: not among the states.
  const FlightState* state_of(int rank) const;

 private:
  std::map<int, const FlightState*> states_{};
  std::vector<Wait> waits_{};
  std::vector<Wait> unended_{};
  std::map<int, std::vector<int>> absent_{};  // of each rank that waits, those it waits for
};

}  // namespace zero
