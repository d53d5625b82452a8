// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator.h"
#include "collectives/mpi/link.h"
#include "collectives/mpi/store.h"

namespace zero::mpi {

/// One process of a group of MPI processes. Each collective is work on the stream it is given,
/// which blocks that stream until the messages are through; a stream that is a thread of its own
/// overlaps them with computation.
class MpiCommunicator final : public Communicator {
 public:
  /// Collective over `group`, which it takes over.
  MpiCommunicator(std::shared_ptr<Session> session, Group group, const Options& options);

  int rank() const override { return link_->rank(); }
  int size() const override { return link_->size(); }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }
  std::string_view backend() const override { return "mpi"; }
  std::unique_ptr<Communicator> split(int color, int key) override;
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
  using Work = std::function<void(Link&, const std::string& who)>;
  void submit(Stream& stream, Operation operation, const Tag& tag, Work work);

  std::shared_ptr<Session> session_;
  std::shared_ptr<Link> link_;  // shared with queued work
  std::unique_ptr<MpiStore> store_;
  int local_rank_ = 0;
  int local_size_ = 1;
};

}  // namespace zero::mpi
