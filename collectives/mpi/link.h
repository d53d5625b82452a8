// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/mpi/options.h"
#include "collectives/mpi/session.h"

namespace zero::mpi {

/// What a communicator's queued work needs: its private MPI communicator and a small staging area.
/// Every operation is pairs of non-blocking messages between all ranks: between processes of one
/// host each is a single copy, and slices of any sizes and places need no packing. Blocks the
/// calling thread (a stream's) without holding its core. One thread at a time.
class Link {
 public:
  /// Bytes of all_reduce's staging at most, whatever the values and the world.
  static constexpr std::int64_t kStaging = std::int64_t{1} << 20;
  /// Values up to this many bytes go to every rank whole instead of in shares: fewer messages.
  static constexpr std::int64_t kWhole = std::int64_t{8} << 10;
  /// Bytes of one message at most where ranks are on several hosts: below OpenMPI's eager limit for
  /// TCP, with room for its header. A longer message asks the receiver first, and the answer queues
  /// behind the receiver's own data on the same connection: two ranks that send to each other then
  /// take turns and use half the link.
  static constexpr std::int64_t kBetweenHosts = std::int64_t{63} << 10;

  Link(Group group, const Options& options) : group_(std::move(group)), options_(options) {}

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  MPI_Comm handle() const { return group_.get(); }
  const Options& options() const { return options_; }
  /// Cuts messages to at most `bytes` from now on. All ranks alike, between collectives.
  void cut_messages(std::int64_t bytes) {
    options_.largest_message = std::min(options_.largest_message, bytes);
  }

  /// Whether this group, or one that it was split from, is on several hosts.
  bool between_hosts() const { return options_.largest_message <= kBetweenHosts; }

  void all_gather(View mine, const Slices& full, std::string_view unit);
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      std::string_view unit);
  void all_reduce(View values, ReduceOp op, std::string_view unit);
  void all_to_all(const Slices& send, const Slices& receive, std::string_view unit);
  void broadcast(View values, int root, std::string_view unit);
  void barrier();

 private:
  using ViewOfRank = std::function<View(int)>;

  /// Sends send(p) to, and receives receive(p) from, every peer p at once.
  void exchange(Operation operation, std::string_view unit, const ViewOfRank& send,
                const ViewOfRank& receive);
  void all_reduce_whole(View values, ReduceOp op, std::string_view unit);
  void all_reduce_shares(View values, ReduceOp op, std::string_view unit);
  View staging(std::int64_t count, DType dtype);

  Group group_;
  Options options_;
  std::vector<std::byte> staging_;
};

}  // namespace zero::mpi
