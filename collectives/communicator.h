// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "collectives/collective_backend.h"

namespace zero {

/// A group of ranks and its collectives: the interface to every backend. Every rank of the group
/// makes the same calls in the same order. Communicator checks the arguments of every collective in
/// every build and throws zero::Error naming rank, operation, purpose and both values; it then
/// submits the collective to the backend, counts its bytes and reports it to listeners (Listening).
///
/// Collectives are asynchronous on `stream` and ordered by it: views must live, and stay untouched,
/// until the stream has passed the call. Views are memory of the stream's device, or any host
/// memory if the stream works on host memory; collectives/host_values.h takes host values on every
/// device. Semantics are equal on every backend; world 1 always works and moves nothing. One host
/// thread uses a communicator, and its collectives run on one stream at a time.
///
/// Several communicators may share a backend, each with its own traffic counter: two engines on one
/// world, which then share a device (DeviceClaim), do not mix their traffic.
class Communicator final {
 public:
  explicit Communicator(std::shared_ptr<CollectiveBackend> backend)
      : backend_(std::move(backend)) {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return backend_->rank(); }
  int size() const { return backend_->size(); }
  /// This rank's number among the group's ranks on this host, and how many these are.
  int local_rank() const { return backend_->local_rank(); }
  int local_size() const { return backend_->local_size(); }
  BackendKind backend() const { return backend_->kind(); }
  /// The same, but in a plan the backend of the run that it foresees.
  BackendKind run_backend() const { return backend_->run_kind(); }
  /// The ways that values take, in words: "shared memory inside the host"; if a faster one was
  /// refused, with the reason: "MPI messages: rank 3: /proc/71/fd/9 cannot be opened: Permission
  /// denied". The same on every rank.
  std::string_view description() const { return backend_->description(); }

  /// Gathers rank r's `mine` into slice r of `full`, on every rank. `mine` has as many elements as
  /// slice rank() and the dtype of `full`; it may be slice rank() itself (in place) and must not
  /// overlap `full` otherwise.
  void all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag);

  /// Sums slice rank() of every rank's `full` by the fixed tree over ranks, in fp32, then applies
  /// the epilogue, whose destination has as many elements as slice rank(). Slices travel in
  /// `full`'s dtype (fp32, bf16, fp16). `full` is read only, except that the epilogue's destination
  /// may be slice rank() itself. `workspace` has at least reduce_scatter_workspace(full) elements
  /// of full's dtype; its content is lost.
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      Stream& stream, const Tag& tag);

  /// Elements of workspace that reduce_scatter needs for `full`: a function of sizes, world and
  /// backend alone.
  std::int64_t reduce_scatter_workspace(const Slices& full) const;

  /// In place, elementwise over ranks: fp32 and fp64 (sums by the fixed tree), i32 and i64 (sums
  /// wrap).
  void all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag);

  /// Sends slice r of `send` to rank r, into slice rank() of that rank's `receive`. Counts must
  /// match pairwise.
  void all_to_all(const Slices& send, const Slices& receive, Stream& stream, const Tag& tag);

  /// Copies `values` of rank `root` to every rank. Any dtype.
  void broadcast(View values, int root, Stream& stream, const Tag& tag);

  /// No rank passes before all have come.
  void barrier(Stream& stream, const Tag& tag);

  /// A communicator of the ranks that give the same color (>= 0), ordered by (key, rank).
  /// Collective over this group, called from the host while no collective is in flight. A negative
  /// color returns null.
  std::unique_ptr<Communicator> split(int color, int key);

  /// Memory that suits this communicator's collectives best (registered, shared or pinned if the
  /// backend can), charged as Device::allocate charges it. A plain buffer works in every collective
  /// too. Not collective.
  Buffer allocate(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
                  std::string_view label) {
    return backend_->allocate(device, count, dtype, memory_class, label);
  }

  /// As allocate(), for a buffer that has the same size on every rank: in a symmetric window of the
  /// group if the backend has such windows (NCCL's symmetric kernels want both sides of a
  /// collective in one). Collective, as allocate_shared() is.
  Buffer allocate_symmetric(Device& device, std::int64_t count, DType dtype,
                            MemoryClass memory_class, std::string_view label);

  /// Memory for values that are equal on all ranks of the group: one memory that all ranks map,
  /// zeroed, if the backend can share it; else a buffer of allocate() on each rank. Each rank is
  /// charged for the whole either way. Peers see a rank's writes to shared memory behind the next
  /// collective that both take part in. In an all_gather to the same part of shared memory on all
  /// ranks, each rank writes its slice once, or nothing if `mine` is that slice; other collectives
  /// treat the memory as a plain buffer. The memory lives until its last user frees it. Collective:
  /// called from the host with the same arguments on every rank, while no collective is in flight.
  /// Throws zero::Error if the ranks' sizes differ.
  SharedBuffer allocate_shared(Device& device, std::int64_t count, DType dtype,
                               MemoryClass memory_class, std::string_view label);

  /// Keys and values shared by all ranks of the group, outside the data path.
  Store& store() { return backend_->store(); }

  /// Limits how long this rank waits in collectives for ranks that do not come; defaults:
  /// WaitLimits. Holds for this communicator, the one it was split from and all splits of it; not
  /// collective. At the timeout every waiting rank throws zero::Error naming the ranks that have
  /// not come, and the group has failed: the next call of a rank that comes later throws too.
  void set_wait_limits(WaitLimits limits) { context().set_limits(std::move(limits)); }
  std::shared_ptr<const WaitLimits> wait_limits() const { return context().limits(); }
  /// Sets the step of later collectives, which messages about long waits name. Holds for the same
  /// communicators.
  void set_step(std::int64_t step) { context().set_step(step); }

  /// Bytes this rank has sent through this communicator (sent_bytes), by the kind of traffic in
  /// Tag.
  const TrafficCounter& traffic() const { return traffic_; }
  void clear_traffic() { traffic_ = {}; }

  /// The backend, for another communicator on the same ranks and for backends built on this one.
  const std::shared_ptr<CollectiveBackend>& implementation() const { return backend_; }

  /// Bytes that one rank sends for an operation moving `total_bytes` in all, by the algorithm:
  /// (N-1)/N of them for all_gather, reduce_scatter and all_to_all, twice that for all_reduce,
  /// (N-1)/N for broadcast, 0 for barrier. The transport does not matter: inside a host no byte
  /// leaves the memory, and between hosts fewer bytes cross than their ranks exchange
  /// (docs/transports.md).
  static std::int64_t sent_bytes(Operation operation, std::int64_t total_bytes, int world);

 private:
  CallContext& context() const { return *backend_->context(); }
  /// Runs `call`, which submits the collective; counts and reports the collective.
  template <typename Call>
  void passed_on(Operation operation, DType dtype, std::int64_t count, Stream& stream,
                 const Tag& tag, const Call& call);
  /// Returns call(), which blocks the ranks' hosts; reports the call.
  template <typename Call>
  auto on_hosts(std::string_view name, const Call& call);

  std::shared_ptr<CollectiveBackend> backend_;
  TrafficCounter traffic_;
};

/// Reserves a communicator's collectives for the streams of one device: ranks match collectives by
/// their order, which streams of two devices do not keep. Any number of claims for one device may
/// live; a planning device, which runs no collectives, claims nothing. Used by the host thread that
/// uses the communicator.
class DeviceClaim {
 public:
  /// Throws zero::Error, naming `who` and what to do, while a claim for another device lives.
  /// `device` must outlive this.
  DeviceClaim(const Communicator& communicator, const Device& device, std::string_view who);
  ~DeviceClaim();
  DeviceClaim(const DeviceClaim&) = delete;
  DeviceClaim& operator=(const DeviceClaim&) = delete;

 private:
  std::shared_ptr<CollectiveBackend> backend_;  // null: nothing is claimed
};

}  // namespace zero
