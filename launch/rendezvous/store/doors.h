// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio.hpp>
#include <functional>
#include <string>

#include "launch/rendezvous/store/address.h"
#include "launch/rendezvous/store/reports.h"

namespace zero {

using StoreSocket = boost::asio::generic::stream_protocol::socket;

/// Where a store listens: a Unix socket, at which only this user's processes on this host are let
/// in, and TCP for jobs with a secret. Takes every connection that comes; if the system has no
/// room for one, rests a moment and goes on.
class StoreDoors {
 public:
  using Take = std::function<void(StoreSocket socket, const std::string& peer)>;

  StoreDoors(boost::asio::io_context& io, StoreReports& reports, Take take)
      : io_(io), reports_(reports), take_(std::move(take)) {}

  /// `port`: 0 for any that is free. Throws zero::Error if it cannot listen.
  void open_local(int port);
  /// The same on TCP: on the loopback if `host` is of it and no rank is on another host, on all
  /// addresses otherwise. This user's processes on this host that do not know of the secret are
  /// taken too, so that they can be told.
  void open_network(const std::string& host, int port, Spread spread);
  int port() const { return port_; }

 private:
  template <typename Acceptor>
  void accept(Acceptor& acceptor, boost::asio::steady_timer& rest);
  void welcome(boost::asio::ip::tcp::socket socket);
  void welcome(boost::asio::local::stream_protocol::socket socket);
  void listen_on_tcp(const std::string& host, int port, Spread spread);
  boost::system::error_code listen_locally(int port);

  boost::asio::io_context& io_;
  StoreReports& reports_;
  Take take_;
  boost::asio::ip::tcp::acceptor network_{io_};
  boost::asio::local::stream_protocol::acceptor local_{io_};
  boost::asio::steady_timer network_rest_{io_};
  boost::asio::steady_timer local_rest_{io_};
  int port_ = 0;
};

}  // namespace zero
