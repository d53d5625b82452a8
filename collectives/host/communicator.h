// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator.h"
#include "collectives/host/group.h"
#include "collectives/prefix_store.h"

namespace zero::host {

/// One process of a group of processes of one host. Each collective is work on the stream it is
/// given, which blocks that stream until it is through. Values travel through memory that the
/// processes share; they find each other through a Store.
class HostCommunicator final : public Communicator {
 public:
  /// Collective through seat.store, where all keys of the group begin with `name`.
  HostCommunicator(std::shared_ptr<Memory> memory, const std::string& reason, const StoreSeat& seat,
                   const std::string& name,
                   std::shared_ptr<CallContext> context = std::make_shared<CallContext>());

  int rank() const override { return seat_.rank; }
  int size() const override { return seat_.size; }
  int local_rank() const override { return seat_.rank; }
  int local_size() const override { return seat_.size; }
  std::string_view backend() const override { return "host"; }
  std::string_view transport() const override { return "shared memory inside the host"; }
  std::unique_ptr<Communicator> split(int color, int key) override;
  /// On a CPU device, memory that peers read where it lies.
  Buffer allocate(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
                  std::string_view label) override;
  /// On CPU devices, a file that all ranks map.
  CommonBuffer allocate_common(Device& device, std::int64_t count, DType dtype,
                               MemoryClass memory_class, std::string_view label) override;
  Store& store() override { return store_; }

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
  /// Submits work(group, unit).
  template <typename Work>
  void submit(Stream& stream, Operation operation, const Tag& tag, Work work);
  Group::Exchange exchange();
  std::string next_key(std::string_view purpose);

  StoreSeat seat_;
  std::string name_;
  PrefixStore store_;
  std::shared_ptr<Memory> memory_;
  int meetings_ = 0;              // in the store
  std::shared_ptr<Group> group_;  // shared with queued work
};

}  // namespace zero::host
