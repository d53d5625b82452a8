// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <boost/asio.hpp>
#include <chrono>
#include <functional>
#include <string>

#include "launch/rendezvous/store/endpoint.h"
#include "launch/rendezvous/store/tls.h"
#include "launch/rendezvous/store/wire.h"

namespace zero {

/// A client's connection to the server of its store; one request at a time. Both ends have proven
/// that they know the job's secret or, without a secret, that they run as the same user. Throws
/// boost::system::system_error if the server does not answer in time or is gone, and zero::Error if
/// another program answers; it is of no more use then. Not thread-safe.
class StoreConnection {
 public:
  using Clock = std::chrono::steady_clock;
  using Message = store_wire::Message;
  /// Asked every kBetweenLooks: whether to wait on.
  using Patience = std::function<bool()>;
  static constexpr std::chrono::milliseconds kBetweenLooks{100};

  StoreConnection(const StoreOptions& options, const Patience& patience);
  StoreConnection(const StoreOptions& options, Clock::time_point deadline)
      : StoreConnection(options, until(deadline)) {}
  StoreConnection(const StoreConnection&) = delete;
  StoreConnection& operator=(const StoreConnection&) = delete;

  /// The address at which the server was reached; empty: by a Unix socket.
  const std::string& address() const { return address_; }
  Message ask(const Message& request, const Patience& patience);
  Message ask(const Message& request, Clock::time_point deadline) {
    return ask(request, until(deadline));
  }

 private:
  static Patience until(Clock::time_point deadline) {
    return [deadline] { return Clock::now() < deadline; };
  }
  void connect_with_secret(const StoreOptions& options, const Patience& patience);
  void connect_network(const std::string& host, const StoreOptions& options,
                       const Patience& patience);
  void connect_locally(int port, const Patience& patience);
  void shake_hands(bool has_secret, const Patience& patience);
  template <typename AnySocket, typename Start>
  std::size_t run(const Patience& patience, AnySocket& socket, const Start& start);

  boost::asio::io_context io_;
  StoreTls tls_;
  StoreStream stream_;
  std::string address_{};
  std::array<char, 16'384> piece_{};
  store_wire::FrameReader incoming_{store_wire::kLargest};
};

}  // namespace zero
