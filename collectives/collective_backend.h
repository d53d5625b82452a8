// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/backend_kind.h"
#include "collectives/call_context.h"
#include "collectives/operation.h"
#include "collectives/slices.h"
#include "device/device.h"

namespace zero {

class Store;

/// The result of allocate_shared.
struct SharedBuffer {
  Buffer buffer;
  bool shared = false;  ///< one memory for all ranks; the flag is equal on every rank
};

/// Elements of workspace that reduce_scatter of `backend` needs for `full`: none for local, host
/// and store, a receive slice per peer for mpi and for nccl's exact sums. mpi has it on one host
/// too, which leaves it untouched, so that one plan holds for all ranks. Throws zero::Error on
/// BackendKind::planning.
std::int64_t reduce_scatter_workspace(BackendKind backend, const Slices& full);

/// Whether slices are added on their way, so that a rank receives one sum, not a slice per peer.
/// Such a reduction is one collective if the slices lie one behind another, and otherwise one for
/// each slice.
bool sums_on_the_way(BackendKind backend);

/// One rank's end of a collective library or transport. Communicator is the only caller: it checks
/// the arguments, so a backend may assume valid input, and counts and reports the collectives
/// submitted here. Each member has the contract of its namesake in Communicator.
class CollectiveBackend {
 public:
  virtual ~CollectiveBackend() = default;
  CollectiveBackend(const CollectiveBackend&) = delete;
  CollectiveBackend& operator=(const CollectiveBackend&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;
  /// Communicator::backend().
  virtual BackendKind kind() const = 0;
  /// Communicator::run_backend().
  virtual BackendKind run_kind() const { return kind(); }
  virtual std::string_view description() const = 0;
  /// Null for a negative color. A part has its members().
  virtual std::shared_ptr<CollectiveBackend> split(int color, int key) = 0;
  virtual Buffer allocate(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
                          std::string_view label) {
    return device.allocate(count, dtype, memory_class, label);
  }
  virtual Buffer allocate_symmetric(Device& device, std::int64_t count, DType dtype,
                                    MemoryClass memory_class, std::string_view label) {
    return allocate(device, count, dtype, memory_class, label);
  }
  virtual SharedBuffer allocate_shared(Device& device, std::int64_t count, DType dtype,
                                       MemoryClass memory_class, std::string_view label) {
    return {allocate(device, count, dtype, memory_class, label), false};
  }
  virtual Store& store() = 0;

  virtual void all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) = 0;
  virtual void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                              Stream& stream, const Tag& tag) = 0;
  std::int64_t reduce_scatter_workspace(const Slices& full) const {
    return zero::reduce_scatter_workspace(run_kind(), full);
  }
  virtual void all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) = 0;
  virtual void all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                          const Tag& tag) = 0;
  virtual void broadcast(View values, int root, Stream& stream, const Tag& tag) = 0;
  virtual void barrier(Stream& stream, const Tag& tag) = 0;

  /// The device whose streams run this backend's collectives, and the number of DeviceClaims for it
  /// that live. The device is named only as long as one does.
  struct Claims {
    const Device* device = nullptr;
    int count = 0;
  };
  Claims& claims() { return claims_; }

  /// Shared with the backend this one was split from.
  const std::shared_ptr<CallContext>& context() const { return context_; }
  /// Of each rank, in order, its rank in the group that this one was split from; empty: it was
  /// split from none.
  const std::vector<int>& members() const { return members_; }
  /// No other backend of this process has this number, or had it: addresses are used again.
  std::uint64_t id() const { return id_; }

 protected:
  explicit CollectiveBackend(std::shared_ptr<CallContext> context);
  /// For split(), before others see the part.
  void set_members(std::vector<int> members) { members_ = std::move(members); }

 private:
  std::shared_ptr<CallContext> context_;
  std::uint64_t id_;
  std::vector<int> members_{};
  Claims claims_;
};

/// Moves values between the memory of this process and that of its peers. Every call blocks the
/// caller until this rank's part of the collective is over; one thread at a time. Arguments are
/// those of Communicator, already checked; `purpose` names the call in errors. A new transport is a
/// class derived from this one, and a BlockingBackend that connects its ranks and hands it over
/// with set_transport() (CONTRIBUTING.md).
class Transport {
 public:
  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  /// Sets the step of later calls, which messages about long waits name.
  virtual void set_step(std::int64_t step) = 0;

  virtual void all_gather(View mine, const Slices& full, std::string_view purpose) = 0;
  virtual void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                              std::string_view purpose) = 0;
  virtual void all_reduce(View values, ReduceOp op, std::string_view purpose) = 0;
  virtual void all_to_all(const Slices& send, const Slices& receive, std::string_view purpose) = 0;
  virtual void broadcast(View values, int root, std::string_view purpose) = 0;
  virtual void barrier(std::string_view purpose) = 0;
};

/// Runs a Transport as work on streams: each collective blocks its stream until the collective is
/// over. A stream with a thread of its own overlaps collectives with computation. Derived classes
/// connect the ranks and set the transport before the first collective.
class BlockingBackend : public CollectiveBackend {
 public:
  void all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) override;
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      Stream& stream, const Tag& tag) override;
  void all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) override;
  void all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                  const Tag& tag) override;
  void broadcast(View values, int root, Stream& stream, const Tag& tag) override;
  void barrier(Stream& stream, const Tag& tag) override;

 protected:
  using CollectiveBackend::CollectiveBackend;
  /// Queued work keeps the transport, and all that the transport owns, alive.
  void set_transport(std::shared_ptr<Transport> transport) { transport_ = std::move(transport); }

 private:
  /// Submits work(transport, purpose).
  template <typename Work>
  void submit(Stream& stream, Operation operation, const Tag& tag, Work work);

  std::shared_ptr<Transport> transport_;
};

}  // namespace zero
