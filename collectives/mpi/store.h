// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/mpi/comm.h"
#include "collectives/mpi/mailbox.h"
#include "collectives/mpi/runtime.h"
#include "collectives/store.h"

namespace zero::mpi {

/// The Store of a group of processes. Each rank keeps every value, so only waits receive messages,
/// and no call needs another rank's participation.
class MpiStore final : public Store {
 public:
  MpiStore(std::shared_ptr<Runtime> runtime, Comm group)
      : runtime_(std::move(runtime)), mailbox_(std::make_unique<Mailbox>(std::move(group))) {}
  ~MpiStore() override;

  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override;
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) override;
  std::optional<std::string> lost() override { return std::nullopt; }

 private:
  std::shared_ptr<Runtime> runtime_;
  std::unique_ptr<Mailbox> mailbox_;
};

}  // namespace zero::mpi
