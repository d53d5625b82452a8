// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <boost/asio.hpp>
#include <chrono>
#include <optional>
#include <string>

#include "launch/rendezvous/store/endpoint.h"
#include "launch/rendezvous/store/tls.h"
#include "launch/rendezvous/store/wire.h"

namespace zero {

/// A client's connection to the server of its store; one request at a time. Both ends have proven
/// that they know the job's secret or, without a secret, that they run as the same user. Throws
/// boost::system::system_error if the server does not answer in time or is gone, and zero::Error if
/// another program answers. Not thread-safe.
class StoreConnection {
 public:
  using Clock = std::chrono::steady_clock;
  using Message = store_wire::Message;

  StoreConnection(const StoreOptions& options, Clock::time_point deadline);
  StoreConnection(const StoreConnection&) = delete;
  StoreConnection& operator=(const StoreConnection&) = delete;

  Message ask(const Message& request, Clock::time_point deadline);

 private:
  void connect_with_secret(const StoreOptions& options, Clock::time_point deadline);
  void connect_network(const std::string& host, int port, Clock::time_point deadline);
  void connect_locally(int port, Clock::time_point deadline);
  void shake_hands(bool has_secret, Clock::time_point deadline);
  template <typename AnySocket, typename Start>
  std::size_t run(Clock::time_point deadline, AnySocket& socket, const Start& start);

  boost::asio::io_context io_;
  StoreTls tls_;
  StoreStream stream_;
  std::array<char, 16'384> piece_{};
  store_wire::FrameReader incoming_{store_wire::kLargest};
};

}  // namespace zero
