// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launch/rendezvous/job_secret.h"
#include "launch/rendezvous/store/address.h"

namespace zero {

/// Keeps the keys and values of a job for the TcpStores of all its ranks, on a thread of its own.
/// Takes requests of connections alone that have proven the job's secret; of a job without a
/// secret, alone of processes of this user on this host. A rank whose first connection ends without
/// a goodbye is lost: whoever waits is told so.
class StoreServer {
 public:
  struct Options {
    std::string host;
    int port = 0;  ///< 0 for any that is free
    int world = 1;
    std::string job{};  ///< the name that all ranks must give
    Spread spread = Spread::unsaid;
    std::optional<JobSecret> secret{};
    /// Is told which connections were dropped, at most every few seconds, on the server's thread.
    std::function<void(const std::string&)> report{};
  };

  /// Listens for this user's processes on this host and, if there is a secret, on TCP: on the
  /// loopback if `host` is of it and no rank is on another host, on all addresses otherwise. Throws
  /// zero::Error if that is refused.
  explicit StoreServer(const Options& options);
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
