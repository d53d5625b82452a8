// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launch/rendezvous/job_secret.h"
#include "launch/rendezvous/store/endpoint.h"

namespace zero {

/// The server of a job's store, on a thread of its own: serves the TcpStores of all ranks. Takes
/// requests only of clients that have proven the job's secret or, if the job has none, that are
/// processes of this user on this host. A rank whose first connection ends without a goodbye is
/// lost: all waits end with that message.
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
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace zero
