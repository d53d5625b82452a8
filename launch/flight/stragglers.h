// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launch/flight/flight_reader.h"

namespace zero {

/// The ring of a rank's flight file.
struct FlightRing {
  int rank = 0;
  std::int64_t shift = 0;  ///< to add to its times, for one clock on all hosts; nanoseconds
  std::vector<FlightGroup> groups{};
  std::vector<FlightRecord> records{};
};

/// A rank for which others waited.
struct Straggler {
  int rank = 0;
  std::int64_t last = 0;  ///< collectives that it entered last
  double seconds = 0;     ///< for which others waited in them, summed over those ranks
  double share = 0;       ///< of all such seconds
};

struct Stragglers {
  std::vector<Straggler> ranks{};  ///< those that came last, the largest share first
  std::int64_t collectives = 0;    ///< that all their ranks have recorded
  double seconds = 0;              ///< of waits in them
};

/// Finds who held up whom in the collectives that the rings of all their ranks still have. A rank
/// waits from its own start until the last one's; the transfer that follows is no wait.
class StragglerFinder {
 public:
  /// Each rank's ring once, in any order.
  void add(const FlightRing& ring);
  Stragglers find() const;

 private:
  /// Ranks that have come to a collective, as far as rings were added.
  struct Arrivals {
    std::size_t ranks = 0;  // of its group
    std::size_t come = 0;
    std::int64_t first = 0;  // start that was added first
    double starts = 0;       // sum, in seconds since `first`
    std::int64_t last = 0;   // latest start
    int last_rank = 0;
  };
  std::map<std::pair<std::string, std::vector<int>>, std::uint64_t> groups_{};
  std::map<std::pair<std::uint64_t, std::uint64_t>, Arrivals> arrivals_{};  // by group and number
};

}  // namespace zero
