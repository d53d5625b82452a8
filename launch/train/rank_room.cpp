// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/rank_room.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "base/error.h"
#include "collectives/host_values.h"
#include "device/cuda/gpus.h"
#include "device/device.h"
#include "launch/config/train_config.h"
#include "launch/plan/machine.h"

namespace zero {
namespace {

/// A rank among those of its host.
struct RankOfHost {
  int rank = 0;  // counted on this host
  int ranks = 1;
  bool are_threads = false;  // of one process
};

/// Bytes of the GPU of a rank that plans may take; 0 if there is no such GPU, as its run will tell.
std::int64_t part_of_gpu(int world, const RankOfHost& rank) {
  try {
    const bool shared = rank.are_threads && cuda::visible_devices() < rank.ranks;
    const int index = shared ? 0 : cuda::index_of_rank(rank.rank);
    const std::int64_t free = cuda::capacity_of(index).free / (shared ? rank.ranks : 1);
    const Machine machine{.devices = world, .kind = DeviceKind::cuda};
    return std::max<std::int64_t>(1, free - usual_reserve(machine));
  } catch (const Error&) {
    return 0;
  }
}

RankRoom room_of(const TrainConfig& config, const RankOfHost& rank) {
  if (!tiers_are_auto(config.values)) return {};
  const std::int64_t host = part_of_host(rank.ranks);
  if (config.run.device == DeviceKind::cpu) {
    return {.bytes = host, .source = "its part of what its host has available"};
  }
  return {
      .bytes = part_of_gpu(config.world, rank), .host = host, .source = "what is free on its GPU"};
}

}  // namespace

RankRoom room_alone(const TrainConfig& config, const Start& start) {
  const bool started = start.world == config.world;
  return room_of(config, {.rank = started ? start.local_rank : 0,
                          .ranks = started ? start.local_world : config.world,
                          .are_threads = start.by == Start::By::threads});
}

RankRoom room_of_all(const TrainConfig& config, Communicator& ranks) {
  if (!tiers_are_auto(config.values)) return {};
  return least_room(room_of(config, {.rank = ranks.local_rank(),
                                     .ranks = ranks.local_size(),
                                     .are_threads = ranks.backend() == BackendKind::local}),
                    ranks);
}

RankRoom least_room(const RankRoom& mine, Communicator& ranks) {
  constexpr std::int64_t kNotKnown = std::numeric_limits<std::int64_t>::max();
  const auto or_most = [](std::int64_t bytes) { return bytes > 0 ? bytes : kNotKnown; };
  std::array<std::int64_t, 2> least{or_most(mine.bytes), or_most(mine.host)};
  host_all_reduce(ranks, *cpu::open(), View::of(std::span<std::int64_t>(least)), ReduceOp::min,
                  {"memory that ranks may use", {}});
  const auto or_none = [](std::int64_t bytes) { return bytes == kNotKnown ? 0 : bytes; };
  return {.bytes = or_none(least[0]),
          .host = or_none(least[1]),
          .source = mine.source + (ranks.size() > 1 ? ", the least of all ranks" : "")};
}

}  // namespace zero
