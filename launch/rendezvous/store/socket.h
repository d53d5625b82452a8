// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/ip/tcp.hpp>

namespace zero {

/// Small messages leave at once, and a peer whose host has vanished is found out within about 8
/// seconds though nothing is sent.
inline void watch_peer(boost::asio::ip::tcp::socket& socket) {
  constexpr int kIdleSeconds = 3;
  constexpr int kSecondsBetween = 1;
  constexpr int kProbes = 5;
  constexpr int kUnansweredMilliseconds = 8000;
  boost::system::error_code ignored;  // a system without one of them still serves
  socket.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  const auto set = [&](int level, int name, int value) {
    ::setsockopt(socket.native_handle(), level, name, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kSecondsBetween);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kUnansweredMilliseconds);
}

}  // namespace zero
