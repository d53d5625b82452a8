// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator.h"
#include "collectives/mpi/store.h"
#include "collectives/mpi/ways.h"

namespace zero::mpi {

/// One process of a group of MPI processes. Each collective is work on the stream it is given,
/// which blocks that stream until it is through; a stream that is a thread of its own overlaps it
/// with computation. Values travel as Ways says.
class MpiCommunicator final : public Communicator {
 public:
  /// Collective over `group`, which it takes over.
  MpiCommunicator(std::shared_ptr<Session> session, Group group, const Options& options,
                  std::shared_ptr<CallContext> context = std::make_shared<CallContext>());

  int rank() const override { return ways_->link.rank(); }
  int size() const override { return ways_->link.size(); }
  int local_rank() const override { return ways_->local_rank; }
  int local_size() const override { return ways_->local_size; }
  std::string_view backend() const override { return "mpi"; }
  std::string_view transport() const override { return ways_->transport; }
  std::unique_ptr<Communicator> split(int color, int key) override;
  /// On a CPU device, memory that peers of this host read where it lies.
  Buffer allocate(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
                  std::string_view label) override;
  /// On CPU devices of one host, a file that all ranks map.
  CommonBuffer allocate_common(Device& device, std::int64_t count, DType dtype,
                               MemoryClass memory_class, std::string_view label) override;
  Store& store() override { return *store_; }

 protected:
  void do_all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) override;
  void do_reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                         Stream& stream, const Tag& tag) override;
  std::int64_t do_reduce_scatter_workspace(const Slices& full) const override;
  void do_all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) override;
  void do_all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                     const Tag& tag) override;
  void do_broadcast(View values, int root, Stream& stream, const Tag& tag) override;
  void do_barrier(Stream& stream, const Tag& tag) override;

 private:
  /// Submits work(ways, unit).
  template <typename Work>
  void submit(Stream& stream, Operation operation, const Tag& tag, Work work);

  std::shared_ptr<Session> session_;
  std::shared_ptr<Ways> ways_;  // shared with queued work
  std::unique_ptr<MpiStore> store_;
};

}  // namespace zero::mpi
