// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "collectives/communicator.h"
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

/// Deals work to `members`. Each rank of the group has one item of work: a member does its own, and
/// items of the other ranks go to the members round robin. In a round each member works for at most
/// one rank; in round 0, for itself.
class WorkAssignment {
 public:
  /// Assigns the work of ranks 0 to `ranks` - 1 to `members`, which ascend.
  WorkAssignment(int ranks, std::vector<int> members);

  const std::vector<int>& members() const { return members_; }
  int size() const { return static_cast<int>(members_.size()); }
  int rounds() const { return (ranks_ + size() - 1) / size(); }
  /// The index of a member in members().
  int index(int member) const;
  /// The member, as a rank, that `rank` is assigned to.
  int owner(int rank) const;
  /// The rank that members()[member] works for in `round`; -1: none.
  int assigned(int round, int member) const;

 private:
  int ranks_;
  std::vector<int> members_;
};

/// The slices that the members of `work` handle in a round: one slice per member.
Slices assigned_slices(const Slices& slices, const WorkAssignment& work, int round);

/// The plan of a group that spans hosts: few bytes travel between them. The plan follows from the
/// host of each rank alone, so every rank knows all of it.
///
/// In a gather, each slice crosses once to each other host, to the rank that the slice is assigned
/// to there; that rank shares the slice with the others of its host.
///
/// A reduction keeps the fixed tree over ranks. A host sums the largest sub-trees whose ranks it
/// holds; for each rank elsewhere, the member that the rank is assigned to forms and sends that
/// sum. A sub-tree of one rank has nothing to sum: its values cross as they are. A larger one sends
/// one fp32 value in place of at least two values of two bytes each, so never more bytes. Every
/// rank then computes the upper part of the tree: the folds.
class HostPlan {
 public:
  /// The values that a fold sums by the tree over them, in this order. Numbers below the number of
  /// sub-trees are the sub-trees' sums; higher numbers are results of earlier folds.
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
  /// Per sub-tree, the member that forms its sum for each rank.
  const std::vector<WorkAssignment>& summing() const { return summing_; }

  /// Fold i gives value subtrees().size() + i; the last one, the sum over all ranks. Empty if one
  /// host holds all ranks.
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

// The upper part of the tree over ranks, from the sums of its sub-trees to the root (plan.folds()):
// the result has the bits of the whole tree. `subtrees` has one view per sub-tree, all of the
// destination's count; the destination may be one of them. Synchronous, on the host.

/// The last part of a reduce_scatter: a sub-tree of one rank gives values in that rank's dtype,
/// larger ones give fp32 sums.
void fold(const HostPlan& plan, std::span<const View> subtrees, const ReduceEpilogue& epilogue);

/// Like cpu::combine(), for values of one dtype.
void fold(const HostPlan& plan, ReduceOp op, std::span<const View> subtrees, View destination);

}  // namespace zero
