// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// How a rank's connection to the store is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>

#include "launch/rendezvous/store/endpoint.h"
#include "launch/rendezvous/store/wire.h"
#include "tests/launch/store_job.h"

namespace zero::testing {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace std::chrono_literals;
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

/// Rank 1 of a job of two, which the store counts as there.
std::unique_ptr<ProvenClient> second_rank(const Job& job) {
  auto client = std::make_unique<ProvenClient>(job.first.port());
  EXPECT_THAT(client->introduce(), ElementsAre("ok"));
  client->ask({"hello"});
  EXPECT_THAT(client->answer(), ElementsAre("ok"));
  return client;
}

/// How the store says that the second rank is lost.
std::string loss_of_second(const Job& job) {
  ProvenClient other(job.first.port());
  EXPECT_THAT(other.introduce(), ElementsAre("ok"));
  store_wire::Message reply{"ok"};
  EXPECT_TRUE(soon([&] {
    other.ask({"lost?"});
    reply = other.answer();
    return reply != store_wire::Message{"ok"};
  }));
  EXPECT_THAT(reply, ElementsAre("lost", _, "1", _));
  return reply.back();
}

// Its process is there: the store itself has ended the connection.
TEST(StoreLosses, ARankThatIsDroppedHasNotEnded) {
  const std::string whole = store_wire::framed({"lost?"});
  for (const std::string& bytes :
       {store_wire::framed({"no request"}), whole.substr(0, whole.size() - 1)}) {
    const Job job(2, secret_of(kSecret), kPatience, {.message = 300ms});
    const auto dropped = second_rank(job);
    dropped->send(bytes);
    EXPECT_THAT(dropped->answer(), IsEmpty());
    EXPECT_EQ(loss_of_second(job), "reset");
  }
}

TEST(StoreLosses, ARankWhoseSystemEndsItsConnectionHasEnded) {
  const Job job(2, secret_of(kSecret));
  second_rank(job).reset();
  EXPECT_EQ(loss_of_second(job), "ended");
}

}  // namespace
}  // namespace zero::testing
