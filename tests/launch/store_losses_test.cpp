// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// How a rank's connection to the store is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <cerrno>

#include "launch/rendezvous/store/endpoint.h"

namespace zero::testing {
namespace {

namespace asio = boost::asio;

boost::system::error_code error_of_system(int number) {
  return {number, boost::system::system_category()};
}

TEST(StoreLosses, AnEndIsThatOfAProcess) {
  EXPECT_EQ(peer_loss_of(asio::error::eof), PeerLoss::ended);
  EXPECT_EQ(peer_loss_of(asio::ssl::error::stream_truncated), PeerLoss::ended);
  EXPECT_EQ(peer_loss_of(error_of_system(EPIPE)), PeerLoss::ended);
}

TEST(StoreLosses, AResetAndBytesThatWereChangedAreNobodysEnd) {
  constexpr int kBadRecord = 0x0A000119;  // SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC
  EXPECT_EQ(peer_loss_of(error_of_system(ECONNRESET)), PeerLoss::reset);
  EXPECT_EQ(peer_loss_of(error_of_system(ECONNABORTED)), PeerLoss::reset);
  EXPECT_EQ(peer_loss_of({kBadRecord, asio::error::get_ssl_category()}), PeerLoss::reset);
}

// A connection whose time is over ends in what ICMP said of it meanwhile, as Linux has it
// (icmp_err_convert, icmpv6_err_convert): of a port by iptables' REJECT, of IPv6 by a firewall.
TEST(StoreLosses, WhatIsSaidOnTheWayIsNoEnd) {
  for (const int number : {ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, ENETDOWN, ECONNREFUSED, EACCES,
                           EHOSTDOWN, ENONET, EPROTO, ENOPROTOOPT, EOPNOTSUPP, EMSGSIZE}) {
    EXPECT_EQ(peer_loss_of(error_of_system(number)), PeerLoss::unreachable) << number;
  }
}

TEST(StoreLosses, AnErrorThatNobodyKnowsIsNoEnd) {
  EXPECT_EQ(peer_loss_of(error_of_system(ENOBUFS)), PeerLoss::unreachable);
  EXPECT_EQ(peer_loss_of(asio::ssl::error::unexpected_result), PeerLoss::unreachable);
}

}  // namespace
}  // namespace zero::testing
