// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "launch/rendezvous/start.h"

namespace zero {

class Communicator;
struct TrainConfig;

/// The memory that a rank may use.
struct RankRoom {
  std::int64_t bytes = 0;  ///< that MemoryUse::bounded() may have; 0: not known
  std::int64_t host = 0;   ///< beside a GPU's: that MemoryUse::on_host() may have; 0: not known
  std::string source{};    ///< of `bytes`: "free on its GPU"
};

/// What this machine has for a rank, as a process finds it that asks no other: part_of_host(); of a
/// GPU what is free on it, less usual_reserve(). `start`: how the
/// process was started; if that is another world than the one of `config`, all its ranks are taken
/// to be on this host. Looks for nothing unless tiers_are_auto(); a GPU that is looked at becomes
/// current on the calling thread. What the system does not tell is not known.
RankRoom room_alone(const TrainConfig& config, const Start& start);

/// The same for all ranks: the least of theirs, where that is known, so that all go on with one.
/// Collective if tiers_are_auto(); blocks the host.
RankRoom room_of_all(const TrainConfig& config, Communicator& ranks);

/// The least of all ranks' rooms, where it is known. Collective; blocks the host.
RankRoom least_room(const RankRoom& mine, Communicator& ranks);

}  // namespace zero
