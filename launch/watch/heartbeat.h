// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/host/process.h"
#include "launch/flight/flight_state.h"

namespace zero {

/// What the first rank of a host says of the host's ranks, some times a second, to the first ranks
/// of other hosts.
struct Heartbeat {
  /// A rank that has told people of a fault.
  struct Told {
    int rank = 0;
    std::string host{};
    bool of_signal = false;  ///< that has ended it, and perhaps all

    bool operator==(const Told&) const = default;
  };
  struct Rank {
    std::int64_t changed = 0;  ///< when it last published anything
    /// What its process does; nothing: unknown, or not asked.
    std::optional<host::Activity> activity{};
    std::optional<FlightState> state{};  ///< nothing: no other than before, or of no interest
  };

  std::int64_t now = 0;  ///< times are those of the host's monotonic clock, this is the present
  bool leaves = false;   ///< its first rank ends in good order, and says no more
  std::optional<Told> told{};
  std::vector<Rank> ranks{};  ///< of the host, in ascending order
};

/// The most bytes of a heartbeat. One that would have more goes without stacks, or without states.
inline constexpr std::size_t kMostHeartbeatBytes = std::size_t{1} << 20U;

/// As a text of JSON.
std::string heartbeat_text(const Heartbeat& heartbeat);

/// The heartbeat of a host that has these ranks, of `world`, ascending. Its states lack run,
/// process, boot and seen. Throws zero::Error if the text is none, or says what no host says.
Heartbeat read_heartbeat(std::string_view text, const std::vector<int>& ranks, int world);

}  // namespace zero
