// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>

namespace zero {

/// Keeps the keys and values of a job for the TcpStores of all its ranks, on a thread of its own.
/// A rank whose first connection ends without a goodbye is lost: whoever waits is told so.
class StoreServer {
 public:
  /// Listens on `port`, 0 for any that is free: on the loopback where `host` names it, on all
  /// addresses otherwise. Throws zero::Error where that is refused.
  StoreServer(const std::string& host, int port, int world);
  /// Stops at once.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  int port() const;
  /// Returns once every rank that came has said goodbye or is lost, or `patience` has passed.
  void wait_for_goodbyes(std::chrono::milliseconds patience);

 private:
  class Keeper;
  std::unique_ptr<Keeper> keeper_;
};

}  // namespace zero
