// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rank_statuses.h"

#include <fmt/format.h>

#include "collectives/host_values.h"

namespace zero {

std::vector<RankStatus> RankStatuses::all_gather(const RankStatus& mine, std::string_view purpose) {
  std::string text = mine.failure;
  text += '\0';  // no message holds one
  text += mine.note;
  std::vector<RankStatus> statuses;
  for (const std::string& each : zero::all_gather_texts(world_, device_, text, purpose)) {
    const std::size_t end = each.find('\0');
    statuses.push_back({each.substr(0, end), each.substr(end + 1)});
  }
  return statuses;
}

std::string RankStatuses::failure(const std::string& mine, std::string_view purpose) {
  return first_failure(all_gather({mine, {}}, purpose));
}

std::string first_failure(std::span<const RankStatus> statuses) {
  for (std::size_t rank = 0; rank < statuses.size(); ++rank) {
    if (!statuses[rank].failure.empty())
      return fmt::format("[rank {}] {}", rank, statuses[rank].failure);
  }
  return "";
}

}  // namespace zero
