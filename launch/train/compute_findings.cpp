// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/compute_findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace zero {
namespace {

/// The first index at which two passes differ; their length if they do not.
std::size_t first_difference(const PassHashes& one, const PassHashes& other) {
  return static_cast<std::size_t>(std::ranges::mismatch(one, other).in1 - one.begin());
}

/// Data-parallel groups of the ranks, and where their passes differ.
class Groups {
 public:
  Groups(std::span<const CheckedPass> ranks, int tensor) : ranks_(ranks), tensor_(tensor) {}

  int count() const { return static_cast<int>(ranks_.size()) / tensor_; }
  int next(int group) const { return (group + 1) % count(); }
  int previous(int group) const { return (group + count() - 1) % count(); }

  /// The ranks of a group whose two own passes differ first; none if no rank's do.
  std::optional<ComputeFinding> differing_again(int group) const {
    return earliest(
        group, [&](int rank) { return first_difference(of(rank).first, of(rank).again); }, false);
  }
  /// The ranks of a group with which the next group's pass of their input disagrees.
  std::optional<ComputeFinding> differing_at_peer(int group) const {
    if (count() == 1) return std::nullopt;
    const int step = (next(group) - group) * tensor_;
    return earliest(
        group,
        [&](int rank) { return first_difference(of(rank).first, of(rank + step).of_previous); },
        true);
  }

 private:
  const CheckedPass& of(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  template <typename Difference>
  std::optional<ComputeFinding> earliest(int group, const Difference& difference,
                                         bool by_peer) const {
    ComputeFinding found{
        .ranks = {}, .output = of(group * tensor_).first.size(), .by_peer = by_peer};
    for (int rank = group * tensor_; rank < (group + 1) * tensor_; ++rank) {
      const std::size_t at = difference(rank);
      if (at == of(rank).first.size() || at > found.output) continue;
      if (at < found.output) found.ranks.clear();
      found.output = at;
      found.ranks.push_back(rank);
    }
    return found.ranks.empty() ? std::nullopt : std::optional(found);
  }

  std::span<const CheckedPass> ranks_;
  int tensor_;
};

}  // namespace

std::vector<ComputeFinding> find_wrong_passes(std::span<const CheckedPass> ranks, int tensor) {
  const Groups groups(ranks, tensor);
  std::vector<ComputeFinding> found;
  std::vector<std::optional<ComputeFinding>> again;
  std::vector<std::optional<ComputeFinding>> at_peer;
  for (int group = 0; group < groups.count(); ++group) {
    again.push_back(groups.differing_again(group));
    at_peer.push_back(groups.differing_at_peer(group));
    if (again.back()) found.push_back(*again.back());
  }
  const auto at = [](auto& list, int group) -> auto& {
    return list[static_cast<std::size_t>(group)];
  };
  // A group whose own passes differ explains why its peers disagree.
  const auto counts = [&](int group) {
    return at(at_peer, group) && !at(again, group) && !at(again, groups.next(group));
  };
  for (int group = 0; group < groups.count(); ++group) {
    if (!counts(group)) continue;
    const int next = groups.next(group);
    const bool of_three = groups.count() > 2;
    if (of_three && counts(groups.previous(group))) {
      found.push_back(*at(at_peer, group));  // both its peers disagree with it
    } else if (!of_three || !counts(next)) {
      if (!of_three && group == 1 && counts(0)) continue;  // said of both already
      ComputeFinding either = *at(at_peer, group);
      for (const int rank : at(at_peer, group)->ranks) {  // and the same ones of the next group
        either.ranks.push_back(rank + (next - group) * tensor);
      }
      std::ranges::sort(either.ranks);
      found.push_back(std::move(either));
    }
  }
  return found;
}

std::optional<std::string> HostFindings::add(std::int64_t step, std::vector<std::string> hosts) {
  std::ranges::sort(hosts);
  const auto repeated = std::ranges::unique(hosts);
  hosts.erase(repeated.begin(), repeated.end());
  std::vector<std::int64_t>& steps = steps_[hosts];
  if (std::ranges::find(steps, step) == steps.end()) steps.push_back(step);
  if (steps.size() < kMost) return std::nullopt;
  return fmt::format(
      "{} {} computed wrongly twice, in steps {}: take {} out (run.check_compute_every), and start "
      "again from a checkpoint before step {}",
      hosts.size() == 1 ? "host" : "one of the hosts", fmt::join(hosts, ", "),
      fmt::join(steps, " and "), hosts.size() == 1 ? "it" : "them", steps.front());
}

}  // namespace zero
