// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "collectives/slices.h"

namespace zero {

/// Consecutive ranks [begin, end).
struct RankRange {
  int begin = 0;
  int end = 0;

  int count() const { return end - begin; }
  bool contains(int rank) const { return rank >= begin && rank < end; }

  friend bool operator==(const RankRange&, const RankRange&) = default;
};

/// Assigns work that is done once per rank of a group to some of its ranks, the members, round
/// robin: each member does its own, and the other ranks' work goes round. In a round each member
/// has one rank at most; in round 0, itself.
class WorkAssignment {
 public:
  /// Of ranks 0 to `ranks` - 1 to `members`, which ascend.
  WorkAssignment(int ranks, std::vector<int> members);

  const std::vector<int>& members() const { return members_; }
  int size() const { return static_cast<int>(members_.size()); }
  int rounds() const { return (ranks_ + size() - 1) / size(); }
  /// Where a member is among the members.
  int index(int member) const;
  /// Which member `rank` is assigned to, as a rank.
  int owner(int rank) const;
  /// The rank that members()[member] has in `round`; -1: none.
  int assigned(int round, int member) const;

 private:
  int ranks_;
  std::vector<int> members_;
};

/// What the members of `work` have in a round of one slice per rank: one slice per member.
Slices assigned_slices(const Slices& slices, const WorkAssignment& work, int round);

/// How a group that spans hosts keeps what crosses between them small, from the host of each rank
/// alone, so that all ranks know all of it.
///
/// A gather: each slice crosses once to each other host, to the rank that the slice is assigned to
/// there; the host's ranks have the rest from each other.
///
/// A reduction keeps the fixed tree over ranks. A host sums the largest sub-trees whose ranks it
/// holds; for each rank elsewhere that sum is formed and sent by the member that the rank is
/// assigned to. A sub-tree of one rank has nothing to sum: its values cross as they are. Any larger
/// one crosses as one fp32 value for at least two of two bytes, so never as more bytes. Every rank
/// then goes up what is left of the tree: the folds.
class HostPlan {
 public:
  /// The sum of some values by the tree over them, in this order. Numbers below the number of
  /// sub-trees are the sub-trees' sums; the others, what earlier folds gave.
  using Fold = std::vector<int>;

  /// hosts[r] is equal for ranks of the same host.
  explicit HostPlan(const std::vector<int>& hosts);

  int ranks() const { return static_cast<int>(host_of_.size()); }
  /// Hosts, in the order of their first ranks.
  const std::vector<WorkAssignment>& hosts() const { return hosts_; }
  int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }

  /// The largest sub-trees of the tree over ranks that one host holds, in rank order.
  const std::vector<RankRange>& subtrees() const { return subtrees_; }
  int subtree_of(int rank) const { return subtree_of_[static_cast<std::size_t>(rank)]; }
  /// Per sub-tree, who forms its sum for which rank.
  const std::vector<WorkAssignment>& summing() const { return summing_; }

  /// Fold i gives value subtrees().size() + i; the last one, the sum over all ranks. None where one
  /// host holds them all.
  const std::vector<Fold>& folds() const { return folds_; }

 private:
  void find_hosts(const std::vector<int>& hosts);
  void find_subtrees(RankRange range);
  int find_folds(RankRange range);
  bool alike(RankRange range) const;

  std::vector<WorkAssignment> hosts_;
  std::vector<int> host_of_;
  std::vector<RankRange> subtrees_;
  std::vector<WorkAssignment> summing_;
  std::vector<int> subtree_of_;
  std::vector<Fold> folds_;
};

}  // namespace zero
