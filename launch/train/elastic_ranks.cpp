// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/elastic_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "collectives/communicator.h"
#include "collectives/host_values.h"
#include "device/device.h"
#include "launch/config/configuration.h"
#include "launch/config/train_config.h"

namespace zero {

int ranks_taking_part(const TrainFlags& flags, int came) {
  if (!flags.error.empty()) return came;
  try {
    const Configuration values = Configuration::read(flags.config, flags.overrides);
    check_elastic(values);
    return elastic_ranks(values, came);
  } catch (const Error&) {
    return came;
  }
}

Start of_first_ranks(Start start, int ranks) {
  if (ranks >= start.world) return start;
  start.world = ranks;
  start.local_world = std::min(start.local_world, ranks);
  return start;
}

std::string elastic_line(int came, int ranks) {
  return fmt::format(
      "run.elastic: {} ranks came, and the first {} take part, the most that are a power of two "
      "and fit train_batch_size and the mesh; the others end with status 0\n",
      came, ranks);
}

ElasticPart elastic_part(Communicator& came, const TrainFlags& flags) {
  const std::string mine = std::to_string(ranks_taking_part(flags, came.size()));
  const std::vector<std::string> all = all_gather_texts(came, *cpu::open(), mine, "run.elastic");
  const bool alike = std::ranges::count(all, mine) == std::ssize(all);
  const int ranks = std::stoi(mine);
  // Ranks whose files differ are named as ranks of one job.
  if (!alike || ranks == came.size()) return {};
  const bool idle = came.rank() >= ranks;
  return {.ranks = came.split(idle ? 1 : 0, came.rank()), .idle = idle};
}

}  // namespace zero
