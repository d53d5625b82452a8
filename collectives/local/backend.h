// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator.h"
#include "collectives/local/peer_ops.h"

namespace zero::local {

/// One rank of a group of threads. Each collective is work on its stream, in which the ranks meet
/// and read each other's memory directly. On a stream that enqueues, the ranks' host threads meet
/// inside the call, which therefore returns once all have come; copies and sums run on the device,
/// behind the events of all ranks' streams.
class LocalBackend final : public CollectiveBackend {
 public:
  /// Rank `rank` of the group; a split passes the context of the group it came from.
  LocalBackend(std::shared_ptr<Group> group, int rank,
               std::shared_ptr<CallContext> context = std::make_shared<CallContext>());

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  int local_rank() const override { return rank_; }
  int local_size() const override { return group_->size(); }
  BackendKind kind() const override { return BackendKind::local; }
  std::string_view description() const override { return "threads of one process"; }
  std::shared_ptr<CollectiveBackend> split(int color, int key) override;
  /// Shared if the device's memory is this process's: the ranks are threads.
  SharedBuffer allocate_shared(Device& device, std::int64_t count, DType dtype,
                               MemoryClass memory_class, std::string_view label) override;
  Store& store() override { return group_->store(); }

  void all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) override;
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      Stream& stream, const Tag& tag) override;
  void all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) override;
  void all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                  const Tag& tag) override;
  void broadcast(View values, int root, Stream& stream, const Tag& tag) override;
  void barrier(Stream& stream, const Tag& tag) override;

 private:
  void submit(Stream& stream, Call call, Body body);

  std::shared_ptr<Group> group_;
  int rank_;
};

/// A world of one rank, the calling process.
std::unique_ptr<Communicator> single();

}  // namespace zero::local
