// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/call_context.h"
#include "collectives/slices.h"
#include "device/device.h"

namespace zero {

class Store;

enum class Operation : std::uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  broadcast,
  barrier
};
std::string_view name_of(Operation operation);

/// What a collective is for. `unit` names the unit (or the purpose: "gradient norm") in errors,
/// records and traces; `counted_as` is the kind of traffic it is booked under: stage 0's reduce and
/// gather of a gradient are one all-reduce.
struct Tag {
  std::string unit;
  std::optional<Operation> counted_as{};
};

/// What Communicator::allocate_common gives.
struct CommonBuffer {
  Buffer buffer;
  bool common = false;  ///< one memory for all ranks; every rank finds the same here
};

/// How the ranks of a group talk. Every rank of the group makes the same calls in the same order.
/// Collectives are asynchronous on `stream` and ordered by it: views must live, and stay untouched,
/// until the stream has passed the call. Public methods check their arguments, always, and throw
/// zero::Error naming rank, operation, unit and both values; the private virtuals may assume valid
/// input. Views are memory of the device whose stream it is; where that works on host memory, any.
/// Values of the host go by collectives/host_values.h. One meaning on every backend; world 1 always
/// works and moves nothing. A communicator is used by one host thread; its collectives by one
/// stream at a time.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Rank among, and number of, the ranks of this group on this host.
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;
  /// "local", "host", "control", "mpi", "nccl", "nccl fast", "planning"
  virtual std::string_view backend() const = 0;
  /// How values travel, for people: "shared memory inside the host"; where a better way was
  /// refused, why: "MPI messages: rank 3: /proc/71/fd/9 cannot be opened: Permission denied". The
  /// same on every rank.
  virtual std::string_view transport() const = 0;

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
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  /// Memory that this communicator's collectives reach best (registered, shared or pinned where the
  /// backend can), charged as Device::allocate charges it. A plain buffer works in every collective
  /// too. Not collective.
  virtual Buffer allocate(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
                          std::string_view label);

  /// Memory for values that all ranks of the group have alike: one for all of them where the
  /// backend can (then it is zero at first), what allocate() gives elsewhere. Each rank is charged
  /// for the whole either way. What a rank writes there, its peers see behind the next collective
  /// that both are in. An all_gather to the same part of it on all ranks writes each slice once, by
  /// its rank, and nothing where `mine` is that slice; other collectives take it as a plain buffer.
  /// It ends with its last user. Collective: called from the host with the same arguments on every
  /// rank, while no collective is in flight. Throws zero::Error where the ranks' sizes differ.
  virtual CommonBuffer allocate_common(Device& device, std::int64_t count, DType dtype,
                                       MemoryClass memory_class, std::string_view label);

  /// Keys and values shared by all ranks of the group, beside the data path.
  virtual Store& store() = 0;

  /// How long this rank waits in collectives for ranks that do not come; those of WaitLimits where
  /// nothing is set. For this communicator, what it was split from and what is split from it; not
  /// collective. At the timeout every rank that waits throws zero::Error naming the ranks that have
  /// not come, and the group has failed: a rank that comes later is told by its next call.
  void set_wait_limits(WaitLimits limits) { context_->set_limits(std::move(limits)); }
  /// Collectives called from now on belong to this step, which lines about long waits name. For the
  /// same communicators.
  void set_step(std::int64_t step) { context_->set_step(step); }
  /// What those communicators share: for who derives one.
  const std::shared_ptr<CallContext>& context() const { return context_; }

  /// Bytes that one rank sends for an operation moving `total_bytes` in all, by the algorithm:
  /// (N-1)/N of them for all_gather, reduce_scatter and all_to_all, twice that for all_reduce,
  /// (N-1)/N for broadcast, 0 for barrier. By whatever way: inside a host nothing leaves the
  /// memory, and between hosts fewer bytes cross than their ranks give to each other
  /// (docs/zero.md).
  static std::int64_t sent_bytes(Operation operation, std::int64_t total_bytes, int world);

 protected:
  /// With the context of another one, which this is split from or stands before.
  explicit Communicator(std::shared_ptr<CallContext> context) : context_(std::move(context)) {}

  virtual void do_all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) = 0;
  virtual void do_reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                                 Stream& stream, const Tag& tag) = 0;
  virtual std::int64_t do_reduce_scatter_workspace(const Slices& full) const = 0;
  virtual void do_all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) = 0;
  virtual void do_all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                             const Tag& tag) = 0;
  virtual void do_broadcast(View values, int root, Stream& stream, const Tag& tag) = 0;
  virtual void do_barrier(Stream& stream, const Tag& tag) = 0;

 private:
  std::shared_ptr<CallContext> context_ = std::make_shared<CallContext>();
};

}  // namespace zero
