// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "launch/faults/flight_reader.h"

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

/// Who held up whom in the collectives that the rings of all their ranks still have. A rank waits
/// from its own start until the last one's; the transfer that follows is no wait.
Stragglers find_stragglers(std::span<const FlightRing> rings);

}  // namespace zero
