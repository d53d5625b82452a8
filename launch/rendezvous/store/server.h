// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "launch/rendezvous/store/acceptor.h"
#include "launch/rendezvous/store/endpoint.h"
#include "launch/rendezvous/store/state.h"
#include "launch/rendezvous/store/tls.h"

namespace zero {

/// The server of a job's store, on a thread of its own: serves the TcpStores of all ranks. Takes
/// requests only from clients that have proven the job's secret or, if the job has none, that are
/// processes of this user on this host. A rank whose first connection ends without a goodbye is
/// lost: all waits then end with a message that says so. One thread makes and ends it; any thread
/// may call its other functions meanwhile.
class StoreServer {
 public:
  /// Listens for this user's processes on this host and, if there is a secret, on TCP: on the
  /// loopback if the ranks meet there (meets_on_loopback), on all addresses otherwise. Throws
  /// zero::Error if the system refuses.
  explicit StoreServer(const StoreOptions& options);
  /// Stops at once.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  int port() const { return acceptor_.port(); }
  /// Returns once every rank that came has said goodbye or is lost, or after `patience`.
  void wait_for_goodbyes(std::chrono::milliseconds patience) { state_.wait_for_goodbyes(patience); }
  /// The first connection that was refused as a rank's, and why: "10.0.0.7:4711: rank 3 is there
  /// already".
  std::optional<std::string> first_refusal() const;

 private:
  class Connection;
  /// Each waiting connection, under the first key that its wait lacks.
  using Waits = std::multimap<std::string, std::shared_ptr<Connection>, std::less<>>;

  void accept(StoreSocket socket, const std::string& peer);
  /// Tries to answer the waits for `key`, which has been set.
  void key_came(const std::string& key);
  /// Tries to answer every wait: a rank is lost.
  void rank_lost();
  void note_refusal(const std::string& peer, const std::string& why);
  void run();

  // Of the server's thread, once it has started; acceptor_'s port stays.
  StoreLimits limits_;
  StoreTls tls_;
  boost::asio::io_context io_;
  ConnectionLog log_;
  StoreState state_;
  std::uint64_t arrivals_ = 0;
  std::map<std::uint64_t, std::shared_ptr<Connection>> unproven_;  // by time of arrival
  std::set<std::shared_ptr<Connection>> clients_;
  Waits waits_;
  StoreAcceptor acceptor_;
  mutable std::mutex refusal_mutex_;  // guards the following
  std::optional<std::string> refusal_{};
  std::thread thread_;  // last: uses all other members
};

}  // namespace zero
