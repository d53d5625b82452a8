// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rank_statuses.h"

#include <fmt/format.h>

#include "collectives/store.h"

namespace zero {

std::vector<RankWord> RankStatuses::all_gather(const RankWord& mine, std::string_view purpose) {
  std::string text = mine.failure;
  text += '\0';  // no message holds one
  text += mine.note;
  std::vector<RankWord> words;
  for (const std::string& each : zero::all_gather_texts(world_, device_, text, purpose)) {
    const std::size_t end = each.find('\0');
    words.push_back({each.substr(0, end), each.substr(end + 1)});
  }
  return words;
}

std::string RankStatuses::failure(const std::string& mine, std::string_view purpose) {
  return first_failure(all_gather({mine, {}}, purpose));
}

std::string first_failure(std::span<const RankWord> words) {
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    if (!words[rank].failure.empty()) return fmt::format("[rank {}] {}", rank, words[rank].failure);
  }
  return "";
}

}  // namespace zero
