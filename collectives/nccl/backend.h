// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/collective_backend.h"
#include "collectives/nccl/bootstrap.h"
#include "collectives/nccl/comm.h"
#include "collectives/nccl/plan.h"
#include "collectives/prefix_store.h"

namespace zero::nccl {

/// A group of GPUs. Collectives fill the stream they are given and return when NCCL has put its
/// work there. Exact sums are made by the tree over ranks from what NCCL only moves.
///
/// Values in host memory, and what peers send to an all-reduce, go part by part through scratch of
/// the communicator (communication); NCCL's own memory is in no ledger.
class NcclBackend final : public CollectiveBackend {
 public:
  /// What makes a rank of a group.
  struct Parts {
    std::shared_ptr<Comm> comm;
    Device& device;
    StoreSeat seat;    ///< of the group; its store is the world's
    std::string name;  ///< its keys in the store begin so
    Options options;
    std::vector<std::string> hosts;  ///< of each rank
    std::string transport;
    std::shared_ptr<CallContext> context;  ///< the session's
  };
  explicit NcclBackend(Parts parts);
  /// Where the rank unwinds, its peers are told.
  ~NcclBackend() override;

  int rank() const override { return parts_.seat.rank; }
  int size() const override { return parts_.seat.size; }
  int local_rank() const override;
  int local_size() const override;
  std::string_view name() const override;
  std::string_view transport() const override { return parts_.transport; }
  std::shared_ptr<CollectiveBackend> split(int color, int key) override;
  /// On the communicator's device, large buffers are NCCL's own, registered.
  Buffer allocate(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
                  std::string_view label) override;
  /// Memory of each rank's own all the same; large buffers are in a window of the ranks'.
  SharedBuffer allocate_shared(Device& device, std::int64_t count, DType dtype,
                               MemoryClass memory_class, std::string_view label) override;
  Store& store() override { return store_; }

  void all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) override;
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      Stream& stream, const Tag& tag) override;
  void all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) override;
  void all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                  const Tag& tag) override;
  void broadcast(View values, int root, Stream& stream, const Tag& tag) override;
  void barrier(Stream& stream, const Tag& tag) override;

 private:
  /// One call of a user's.
  struct Job {
    Stream& stream;
    std::string who;  ///< "[rank 3] all_gather(h.0)"
  };
  Job job(Stream& stream, Operation operation, const Tag& tag) const;
  /// Submits calls(group): one group of NCCL's.
  void submit(const Job& job, std::function<void(const Calls&)> calls);
  /// Behind it in the stream, host code knows that no rank had failed before.
  void check_on(const Job& job);
  void copy(const Job& job, View from, View to);
  View scratch(std::int64_t count, DType dtype) const;

  void all_gather_on_device(const Job& job, View mine, const Slices& full);
  void all_gather_on_host(const Job& job, View mine, const Slices& full);

  // Reductions (reductions.cpp).
  using Epilogue = ReduceEpilogue;
  void reduce_direct(const Job& job, const Slices& full, const Epilogue& epilogue, View workspace);
  void reduce_halving(const Job& job, const Slices& full, const Epilogue& epilogue, View workspace);
  void reduce_fast(const Job& job, const Slices& full, const Epilogue& epilogue, View workspace);
  void combine_whole(const Job& job, View values, ReduceOp op);
  void sum_shares(const Job& job, View values);

  Parts parts_;
  PrefixStore store_;
  int exceptions_;  // in flight when this was made
  int splits_ = 0;
  int shared_made_ = 0;
  Buffer scratch_;
};

}  // namespace zero::nccl
