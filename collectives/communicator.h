// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "collectives/collective_backend.h"
#include "collectives/traffic.h"

namespace zero {

/// How the ranks of a group talk: the one door to every backend. Every rank of the group makes the
/// same calls in the same order. Each collective is checked here, once and always, and throws
/// zero::Error naming rank, operation, unit and both values; then it goes to the backend, is
/// counted and told to listeners (Listening).
///
/// Collectives are asynchronous on `stream` and ordered by it: views must live, and stay untouched,
/// until the stream has passed the call. Views are memory of the device whose stream it is; if the
/// stream works on host memory, any. Values of the host go by collectives/host_values.h. One
/// meaning on every backend; world 1 always works and moves nothing. A communicator is used by one
/// host thread; its collectives by one stream at a time.
///
/// Several communicators may share a backend, each with a count of its own: two engines on one
/// world do not mix their traffic.
class Communicator final {
 public:
  explicit Communicator(std::shared_ptr<CollectiveBackend> backend)
      : backend_(std::move(backend)) {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return backend_->rank(); }
  int size() const { return backend_->size(); }
  /// Rank among, and number of, the ranks of this group on this host.
  int local_rank() const { return backend_->local_rank(); }
  int local_size() const { return backend_->local_size(); }
  /// "local", "host", "control", "mpi", "nccl", "nccl fast", "planning"
  std::string_view backend() const { return backend_->name(); }
  /// How values travel, for people: "shared memory inside the host"; if a better way was refused,
  /// why: "MPI messages: rank 3: /proc/71/fd/9 cannot be opened: Permission denied". The same on
  /// every rank.
  std::string_view transport() const { return backend_->transport(); }

  /// After it, slice r of `full` holds rank r's `mine`, on every rank. `mine` has as many elements
  /// as slice rank() and the dtype of `full`; it may be slice rank() itself (in place) and must not
  /// overlap `full` otherwise.
  void all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag);

  /// Sums slice rank() of every rank's `full` by the fixed tree over ranks, in fp32, then applies
  /// the epilogue, whose destination has as many elements as slice rank(). Slices travel in
  /// `full`'s dtype (fp32, bf16, fp16). `full` is only read, but for slice rank() where the
  /// epilogue's destination is that very memory. `workspace` has at least
  /// reduce_scatter_workspace(full) elements of full's dtype; its content is lost.
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      Stream& stream, const Tag& tag);

  /// Elements of workspace that reduce_scatter needs for `full`: a function of sizes, world and
  /// backend alone.
  std::int64_t reduce_scatter_workspace(const Slices& full) const;

  /// In place, elementwise over ranks: fp32 and fp64 (sums by the fixed tree), i32 and i64 (sums
  /// wrap).
  void all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag);

  /// Slice r of `send` goes to rank r, where it becomes slice rank() of that rank's `receive`.
  /// Counts must match pairwise.
  void all_to_all(const Slices& send, const Slices& receive, Stream& stream, const Tag& tag);

  /// `values` of rank `root` reach every rank. Any dtype.
  void broadcast(View values, int root, Stream& stream, const Tag& tag);

  /// No rank passes before all have come.
  void barrier(Stream& stream, const Tag& tag);

  /// A communicator of the ranks that give the same color (>= 0), ordered by (key, rank).
  /// Collective over this group, called from the host while no collective is in flight. A negative
  /// color returns null.
  std::unique_ptr<Communicator> split(int color, int key);

  /// Memory that this communicator's collectives reach best (registered, shared or pinned if the
  /// backend can), charged as Device::allocate charges it. A plain buffer works in every collective
  /// too. Not collective.
  Buffer allocate(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
                  std::string_view label) {
    return backend_->allocate(device, count, dtype, memory_class, label);
  }

  /// Memory for values that all ranks of the group have alike: one for all of them if the backend
  /// can (then it is zero at first), what allocate() gives elsewhere. Each rank is charged for the
  /// whole either way. What a rank writes there, its peers see behind the next collective that both
  /// are in. An all_gather to the same part of it on all ranks writes each slice once, by its rank,
  /// and nothing if `mine` is that slice; other collectives take it as a plain buffer. It ends with
  /// its last user. Collective: called from the host with the same arguments on every rank, while
  /// no collective is in flight. Throws zero::Error if the ranks' sizes differ.
  SharedBuffer allocate_shared(Device& device, std::int64_t count, DType dtype,
                               MemoryClass memory_class, std::string_view label) {
    return backend_->allocate_shared(device, count, dtype, memory_class, label);
  }

  /// Keys and values shared by all ranks of the group, beside the data path.
  Store& store() { return backend_->store(); }

  /// How long this rank waits in collectives for ranks that do not come; those of WaitLimits if
  /// nothing is set. For this communicator, what it was split from and what is split from it; not
  /// collective. At the timeout every rank that waits throws zero::Error naming the ranks that have
  /// not come, and the group has failed: a rank that comes later is told by its next call.
  void set_wait_limits(WaitLimits limits) { context().set_limits(std::move(limits)); }
  /// Collectives called after this belong to this step, which lines about long waits name. For the
  /// same communicators.
  void set_step(std::int64_t step) { context().set_step(step); }

  /// Bytes this rank has sent through this communicator (sent_bytes), by what tags count them as.
  const TrafficCounter& traffic() const { return traffic_; }
  void clear_traffic() { traffic_ = {}; }

  /// For another communicator on the same ranks, and for backends built on this one.
  const std::shared_ptr<CollectiveBackend>& implementation() const { return backend_; }

  /// Bytes that one rank sends for an operation moving `total_bytes` in all, by the algorithm:
  /// (N-1)/N of them for all_gather, reduce_scatter and all_to_all, twice that for all_reduce,
  /// (N-1)/N for broadcast, 0 for barrier. By whatever way: inside a host nothing leaves the
  /// memory, and between hosts fewer bytes cross than their ranks give to each other
  /// (docs/transports.md).
  static std::int64_t sent_bytes(Operation operation, std::int64_t total_bytes, int world);

 private:
  CallContext& context() const { return *backend_->context(); }
  /// Runs `call`, which submits the collective, and counts and reports it.
  template <typename Call>
  void passed_on(Operation operation, DType dtype, std::int64_t count, Stream& stream,
                 const Tag& tag, const Call& call);

  std::shared_ptr<CollectiveBackend> backend_;
  TrafficCounter traffic_;
};

}  // namespace zero
