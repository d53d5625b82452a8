// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/call.h"

namespace zero {
namespace {

int name_of(int rank, std::span<const int> names) {
  return names.empty() ? rank : names[static_cast<std::size_t>(rank)];
}

std::optional<std::string> pairwise_mismatch(const Call& mine, int me, const Call& theirs, int them,
                                             std::span<const int> names) {
  const auto i = static_cast<std::size_t>(me);
  const auto j = static_cast<std::size_t>(them);
  if (mine.receive_counts[j] != theirs.counts[i]) {
    return fmt::format("[rank {}] {}: rank {} sends {} elements, expected receive slice {}'s {}",
                       name_of(me, names), mine.name, name_of(them, names), theirs.counts[i], them,
                       mine.receive_counts[j]);
  }
  if (mine.counts[j] != theirs.receive_counts[i]) {
    return fmt::format("[rank {}] {}: rank {} expects {} elements, send slice {} has {}",
                       name_of(me, names), mine.name, name_of(them, names),
                       theirs.receive_counts[i], them, mine.counts[j]);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> mismatch(const Call& mine, int me, const Call& theirs, int them,
                                    std::span<const int> names) {
  const int my_name = name_of(me, names);
  const int their_name = name_of(them, names);
  if (mine.name != theirs.name) {
    return fmt::format("[rank {}] {} met {} of rank {}", my_name, mine.name, theirs.name,
                       their_name);
  }
  if (mine.details != theirs.details) {
    return fmt::format("[rank {}] {} ({}) met {} ({}) of rank {}", my_name, mine.name, mine.details,
                       theirs.name, theirs.details, their_name);
  }
  if (mine.pairwise) return pairwise_mismatch(mine, me, theirs, them, names);
  if (mine.counts.size() != theirs.counts.size()) {
    return fmt::format("[rank {}] {}: {} slices met {} of rank {}", my_name, mine.name,
                       mine.counts.size(), theirs.counts.size(), their_name);
  }
  for (std::size_t r = 0; r < mine.counts.size(); ++r) {
    if (mine.counts[r] != theirs.counts[r]) {
      return fmt::format("[rank {}] {}: {} elements in slice {} met {} of rank {}", my_name,
                         mine.name, mine.counts[r], r, theirs.counts[r], their_name);
    }
  }
  return std::nullopt;
}

}  // namespace zero
