// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/blocking_backend.h"
#include "collectives/mpi/connection.h"
#include "collectives/mpi/store.h"

namespace zero::mpi {

/// One process of a group of MPI processes. Values travel as Connection says.
class MpiBackend final : public BlockingBackend {
 public:
  /// Collective over `group`, which it takes over.
  MpiBackend(std::shared_ptr<Runtime> runtime, Comm group, const Options& options,
             std::shared_ptr<CallContext> context = std::make_shared<CallContext>());

  int rank() const override { return connection_->link().rank(); }
  int size() const override { return connection_->link().size(); }
  int local_rank() const override { return connection_->local_rank(); }
  int local_size() const override { return connection_->local_size(); }
  std::string_view name() const override { return "mpi"; }
  std::string_view transport() const override { return connection_->description(); }
  std::shared_ptr<CollectiveBackend> split(int color, int key) override;
  /// On a CPU device, memory that peers of this host read where it lies.
  Buffer allocate(Device& device, std::int64_t count, DType dtype, MemoryClass memory_class,
                  std::string_view label) override;
  /// On CPU devices of one host, a file that all ranks map.
  SharedBuffer allocate_shared(Device& device, std::int64_t count, DType dtype,
                               MemoryClass memory_class, std::string_view label) override;
  Store& store() override { return *store_; }

 private:
  std::shared_ptr<Runtime> runtime_;
  std::shared_ptr<Connection> connection_;  // shared with queued work
  std::unique_ptr<MpiStore> store_;
};

}  // namespace zero::mpi
