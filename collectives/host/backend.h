// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/blocking_backend.h"
#include "collectives/host/group.h"
#include "collectives/prefix_store.h"

namespace zero::host {

/// One process of a group of processes of one host. Values travel through memory that the processes
/// share; they find each other through a Store.
class HostBackend final : public BlockingBackend {
 public:
  /// Collective through seat.store, where all keys of the group begin with `name`.
  HostBackend(std::shared_ptr<Memory> memory, const std::string& reason, const StoreSeat& seat,
              const std::string& name,
              std::shared_ptr<CallContext> context = std::make_shared<CallContext>());

  int rank() const override { return seat_.rank; }
  int size() const override { return seat_.size; }
  int local_rank() const override { return seat_.rank; }
  int local_size() const override { return seat_.size; }
  std::string_view name() const override { return "host"; }
  std::string_view transport() const override { return "shared memory inside the host"; }
  std::shared_ptr<CollectiveBackend> split(int color, int key) override;
  /// On a CPU device, memory that peers read where it lies.
  Buffer allocate(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
                  std::string_view label) override;
  /// On CPU devices, a file that all ranks map.
  SharedBuffer allocate_shared(Device& device, std::int64_t count, DType dtype,
                               MemoryClass memory_class, std::string_view label) override;
  Store& store() override { return store_; }

 private:
  Group::Exchange exchange();
  std::string next_key(std::string_view purpose);

  StoreSeat seat_;
  std::string name_;
  PrefixStore store_;
  std::shared_ptr<Memory> memory_;
  int meetings_ = 0;  // in the store
  std::shared_ptr<Group> group_;
};

}  // namespace zero::host
