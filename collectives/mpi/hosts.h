// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/host/group.h"
#include "collectives/host_plan.h"
#include "collectives/mpi/link.h"
#include "collectives/mpi/transfers.h"
#include "collectives/transport.h"

namespace zero::mpi {

/// Collectives of ranks on several hosts, by a HostPlan: shared memory inside a host, messages
/// between hosts, with the bits of the one tree over all ranks. Long values go in parts: while one
/// is on its way between the hosts, their ranks sum, or copy, the one before or after it. All ranks
/// of a host first compare what they call, and so do the hosts.
class Hosts final : public Transport {
 public:
  /// Bytes of a slice that a gather has on its way at once, and of what a reduction keeps of a part
  /// per rank; two parts are under way.
  static constexpr std::int64_t kPart = std::int64_t{1} << 20;

  /// This rank's groups: the ranks of its host, and of its sub-tree where that has more than one
  /// rank and is not the whole host; null otherwise.
  struct Groups {
    std::unique_ptr<host::Group> host;
    std::unique_ptr<host::Group> subtree;
  };

  /// `link` must outlive this.
  Hosts(Link& link, HostPlan plan, Groups groups);

  void set_step(std::int64_t step) override;

  void all_gather(View mine, const Slices& full, std::string_view unit) override;
  /// Without a workspace: parts of the sums are kept here.
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      std::string_view unit) override;
  void all_reduce(View values, ReduceOp op, std::string_view unit) override;
  void all_to_all(const Slices& send, const Slices& receive, std::string_view unit) override;
  void broadcast(View values, int root, std::string_view unit) override;
  void barrier(std::string_view unit) override;

 private:
  using Intent = host::Group::Intent;

  /// A part of a reduction that is under way: a sum per sub-tree of this rank's elements, as far as
  /// they have come, and the memory for it.
  struct Sums {
    std::vector<View> of_subtrees;
    std::vector<std::byte> memory;
    std::int64_t used = 0;

    /// Room for `bytes`, none taken.
    void clear(std::size_t subtrees, std::int64_t bytes);
    View take(std::int64_t count, DType dtype);
  };

  using Work = std::function<void()>;
  using Start = std::function<void(std::int64_t part, Transfers& transfers)>;
  using End = std::function<void(std::int64_t part)>;

  /// Agrees with the host's ranks and the other hosts, and runs `work`; when that throws, all ranks
  /// hear of it.
  void call(const Intent& intent, const Work& work);
  /// Starts part after part with start(part, transfers); ends each with end(part) when its messages
  /// are through, while the next ones travel.
  void in_parts(std::int64_t parts, const Start& start, const End& end);
  /// Where the waits of this rank's groups stand (LongWait).
  void set_behind(int waits);

  /// The ranks of this rank's sub-tree, and which of them sums for which rank.
  const WorkAssignment& subtree() const {
    return plan_.summing()[static_cast<std::size_t>(subtree_)];
  }
  host::Group& subtree_group() { return groups_.subtree ? *groups_.subtree : *groups_.host; }

  void gather(const Intent& intent, View mine, const Slices& full, int without);
  void share_round(const Intent& intent, int round, View mine, const Slices& part);
  void broadcast_whole(const Intent& intent, View values);
  void broadcast_shares(const Intent& intent, View values);

  // Reductions (hosts_reduce.cpp).
  void start_sums(const Intent& intent, const Slices& part, Sums& sums, Transfers& transfers);
  std::int64_t sums_of_part() const;
  void receive_sums(View own, DType dtype, Sums& sums, Transfers& transfers);
  void all_reduce_shares(const Intent& intent, View values);
  void combine_between(const Intent& intent, const std::function<View(int)>& part_of);

  Link& link_;
  HostPlan plan_;
  Groups groups_;
  int host_;     // this rank's
  int subtree_;  // this rank's
  std::array<Sums, 2> sums_;
};

}  // namespace zero::mpi
