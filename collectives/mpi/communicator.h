// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator.h"
#include "collectives/host/group.h"
#include "collectives/mpi/link.h"
#include "collectives/mpi/store.h"

namespace zero::mpi {

/// One process of a group of MPI processes. Each collective is work on the stream it is given,
/// which blocks that stream until it is through; a stream that is a thread of its own overlaps it
/// with computation. Values travel through memory that the ranks share where one host holds them
/// all and lets them, in MPI messages otherwise.
class MpiCommunicator final : public Communicator {
 public:
  /// Collective over `group`, which it takes over.
  MpiCommunicator(std::shared_ptr<Session> session, Group group, const Options& options);

  int rank() const override { return ways_->link.rank(); }
  int size() const override { return ways_->link.size(); }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }
  std::string_view backend() const override { return "mpi"; }
  std::string_view transport() const override { return transport_; }
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
  void share_memory(const Options& options);
  /// The group's two ways to talk.
  struct Ways {
    Link link;
    std::unique_ptr<host::Group> host;  // null where messages travel
  };
  /// Submits work(ways, unit).
  template <typename Work>
  void submit(Stream& stream, Operation operation, const Tag& tag, Work work);

  std::shared_ptr<Session> session_;
  std::shared_ptr<Ways> ways_;            // shared with queued work
  std::shared_ptr<host::Memory> memory_;  // null where nothing is shared
  std::string transport_;
  std::unique_ptr<MpiStore> store_;
  int local_rank_ = 0;
  int local_size_ = 1;
};

}  // namespace zero::mpi
