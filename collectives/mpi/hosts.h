// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/collective_backend.h"
#include "collectives/host/transport.h"
#include "collectives/host_plan.h"
#include "collectives/mpi/link.h"
#include "collectives/mpi/transfers.h"

namespace zero::mpi {

/// Collectives of ranks on several hosts, by a HostPlan: shared memory inside a host, messages
/// between hosts, with the bits of the tree over all ranks. Long values go in parts: while one
/// travels between the hosts, their ranks sum or copy the one before or after it. The ranks of a
/// host first compare their calls, and so do the hosts.
class Hosts final : public Transport {
 public:
  /// Bytes of one part: of a slice in a gather, of a rank's sums in a reduction. Two parts are
  /// under way at once.
  static constexpr std::int64_t kPart = std::int64_t{1} << 20;

  /// This rank's transports: among the ranks of its host, and among those of its sub-tree; the
  /// latter is null if the sub-tree is one rank or the whole host.
  struct Transports {
    std::unique_ptr<host::HostTransport> host;
    std::unique_ptr<host::HostTransport> subtree;
  };

  /// `link` must outlive this.
  Hosts(Link& link, HostPlan plan, Transports transports);

  void set_step(std::int64_t step) override;

  void all_gather(View mine, const Slices& full, std::string_view purpose) override;
  /// Needs no workspace: this object holds parts of the sums.
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      std::string_view purpose) override;
  void all_reduce(View values, ReduceOp op, std::string_view purpose) override;
  void all_to_all(const Slices& send, const Slices& receive, std::string_view purpose) override;
  void broadcast(View values, int root, std::string_view purpose) override;
  void barrier(std::string_view purpose) override;

 private:
  using CallSignature = host::HostTransport::CallSignature;

  /// One part of a reduction: a sum per sub-tree of this rank's elements, as far as they have
  /// arrived, and its memory.
  struct Sums {
    std::vector<View> of_subtrees;
    std::vector<std::byte> memory;
    std::int64_t used = 0;

    /// Makes room for `bytes`, all of it free.
    void clear(std::size_t subtrees, std::int64_t bytes);
    View take(std::int64_t count, DType dtype);
  };

  using Work = std::function<void()>;
  using Start = std::function<void(std::int64_t part, Transfers& transfers)>;
  using End = std::function<void(std::int64_t part)>;

  /// Compares calls with the host's ranks and the other hosts, and runs `work`; if that throws, all
  /// ranks fail with its message.
  void call(const CallSignature& signature, const Work& work);
  /// Starts part after part with start(part, transfers) and ends each with end(part) once its
  /// messages are complete, while those of the next part travel.
  void in_parts(std::int64_t parts, const Start& start, const End& end);
  /// Sets `behind` (LongWait) of this rank's transports.
  void set_behind(int waits);

  /// The ranks of this rank's sub-tree, and the rank that each sums for.
  const WorkAssignment& subtree() const {
    return plan_.summing()[static_cast<std::size_t>(subtree_)];
  }
  host::HostTransport& subtree_transport() {
    return transports_.subtree ? *transports_.subtree : *transports_.host;
  }

  void gather(const CallSignature& signature, View mine, const Slices& full, int without);
  void share_round(const CallSignature& signature, int round, View mine, const Slices& part);
  void broadcast_whole(const CallSignature& signature, View values);
  void broadcast_shares(const CallSignature& signature, View values);

  // Reductions.
  void start_sums(const CallSignature& signature, const Slices& part, Sums& sums,
                  Transfers& transfers);
  std::int64_t sums_of_part() const;
  void receive_sums(View own, DType dtype, Sums& sums, Transfers& transfers);
  void all_reduce_shares(const CallSignature& signature, View values);
  void combine_between(const CallSignature& signature, const std::function<View(int)>& part_of);

  Link& link_;
  HostPlan plan_;
  Transports transports_;
  int host_;     // this rank's
  int subtree_;  // this rank's
  std::array<Sums, 2> sums_;
};

}  // namespace zero::mpi
