// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/collective_backend.h"
#include "collectives/nccl/comm.h"
#include "collectives/nccl/plan.h"
#include "collectives/stores.h"

namespace zero::nccl {

/// A group of GPUs. Collectives return once NCCL has enqueued its work on the stream. For exact
/// sums NCCL only moves values; kernels of the device sum them by the tree over ranks.
///
/// Values in host memory, and peers' values in an all-reduce, go part by part through the
/// communicator's scratch memory (class communication); NCCL's own memory is in no ledger.
class NcclBackend final : public CollectiveBackend {
 public:
  /// The parts of one rank of a group.
  struct Parts {
    std::shared_ptr<Comm> comm;
    Device& device;
    StoreRank self;    ///< of the group; its store is the world's
    std::string name;  ///< prefix of its keys in the store
    Options options;
    std::vector<std::string> hosts;  ///< of each rank
    std::string description;
    std::shared_ptr<CallContext> context;  ///< the session's
  };
  explicit NcclBackend(Parts parts);
  /// If an exception unwinds the rank, tells its peers.
  ~NcclBackend() override;

  int rank() const override { return parts_.self.rank; }
  int size() const override { return parts_.self.size; }
  int local_rank() const override;
  int local_size() const override;
  BackendKind kind() const override;
  std::string_view description() const override { return parts_.description; }
  std::shared_ptr<CollectiveBackend> split(int color, int key) override;
  /// On the communicator's device, large buffers are allocated by NCCL and registered.
  Buffer allocate(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
                  std::string_view label) override;
  /// Large buffers are in a symmetric window of the group.
  Buffer allocate_symmetric(Device& device, std::int64_t count, DType dtype,
                            MemoryClass memory_class, std::string_view label) override;
  /// Each rank gets symmetric memory of its own.
  SharedBuffer allocate_shared(Device& device, std::int64_t count, DType dtype,
                               MemoryClass memory_class, std::string_view label) override {
    return {allocate_symmetric(device, count, dtype, memory_class, label), false};
  }
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
  /// One collective of a user.
  struct Submission {
    Stream& stream;
    std::string who;  ///< "[rank 3] all_gather(h.0)"
  };
  Submission submission(Stream& stream, Operation operation, const Tag& tag) const;
  /// Submits calls(group) as one NCCL group.
  void submit(const Submission& submission, std::function<void(const Calls&)> calls);
  /// Host code behind this in the stream runs only if no rank has failed before.
  void check_on(const Submission& submission);
  void copy(const Submission& submission, View from, View to);
  View scratch(std::int64_t count, DType dtype) const;

  void all_gather_on_device(const Submission& submission, View mine, const Slices& full);
  void all_gather_on_host(const Submission& submission, View mine, const Slices& full);

  // Reductions (reductions.cpp).
  using Epilogue = ReduceEpilogue;
  void reduce_direct(const Submission& submission, const Slices& full, const Epilogue& epilogue,
                     View workspace);
  void reduce_halving(const Submission& submission, const Slices& full, const Epilogue& epilogue,
                      View workspace);
  void reduce_fast(const Submission& submission, const Slices& full, const Epilogue& epilogue,
                   View workspace);
  void combine_whole(const Submission& submission, View values, ReduceOp op);
  void sum_shares(const Submission& submission, View values);

  Parts parts_;
  PrefixStore store_;
  int exceptions_;  // in flight when this was made
  int splits_ = 0;
  int symmetric_made_ = 0;
  Buffer scratch_;
};

}  // namespace zero::nccl
