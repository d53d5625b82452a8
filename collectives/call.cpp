// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/call.h"

namespace zero {
namespace {

std::optional<std::string> pairwise_mismatch(const Call& mine, int me, const Call& theirs,
                                             int them) {
  const auto i = static_cast<std::size_t>(me);
  const auto j = static_cast<std::size_t>(them);
  if (mine.receive_counts[j] != theirs.counts[i]) {
    return fmt::format("[rank {}] {}: rank {} sends {} elements, expected receive slice {}'s {}",
                       me, mine.name, them, theirs.counts[i], them, mine.receive_counts[j]);
  }
  if (mine.counts[j] != theirs.receive_counts[i]) {
    return fmt::format("[rank {}] {}: rank {} expects {} elements, send slice {} has {}", me,
                       mine.name, them, theirs.receive_counts[i], them, mine.counts[j]);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> mismatch(const Call& mine, int me, const Call& theirs, int them) {
  if (mine.name != theirs.name) {
    return fmt::format("[rank {}] {} met {} of rank {}", me, mine.name, theirs.name, them);
  }
  if (mine.details != theirs.details) {
    return fmt::format("[rank {}] {} ({}) met {} ({}) of rank {}", me, mine.name, mine.details,
                       theirs.name, theirs.details, them);
  }
  if (mine.pairwise) return pairwise_mismatch(mine, me, theirs, them);
  if (mine.counts.size() != theirs.counts.size()) {
    return fmt::format("[rank {}] {}: {} slices met {} of rank {}", me, mine.name,
                       mine.counts.size(), theirs.counts.size(), them);
  }
  for (std::size_t r = 0; r < mine.counts.size(); ++r) {
    if (mine.counts[r] != theirs.counts[r]) {
      return fmt::format("[rank {}] {}: {} elements in slice {} met {} of rank {}", me, mine.name,
                         mine.counts[r], r, theirs.counts[r], them);
    }
  }
  return std::nullopt;
}

}  // namespace zero
