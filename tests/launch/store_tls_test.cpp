// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Somebody on the wire between the ranks of a job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <atomic>
#include <functional>
#include <thread>

#include "launch/rendezvous/store/connection.h"
#include "tests/errors.h"
#include "tests/launch/store_job.h"

namespace zero::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Gives a context a certificate that it has signed itself.
void certify(SSL_CTX* context) {
  EVP_PKEY* const key = ::EVP_EC_gen("P-256");
  X509* const certificate = ::X509_new();
  ::X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  ::X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  ::X509_set_pubkey(certificate, key);
  EXPECT_GT(::X509_sign(certificate, key, ::EVP_sha256()), 0);
  EXPECT_EQ(::SSL_CTX_use_certificate(context, certificate), 1);
  EXPECT_EQ(::SSL_CTX_use_PrivateKey(context, key), 1);
  ::X509_free(certificate);
  ::EVP_PKEY_free(key);
}

/// Passes the bytes of one connection on to `port` both ways, changed by `change`, and keeps those
/// of the client.
class Eavesdropper {
 public:
  using Change = std::function<void(std::string&)>;

  explicit Eavesdropper(
      int port, Change change = [](std::string&) {})
      : thread_([this, port, change = std::move(change)] {
          const RawClient client = listener_.accepted();
          const RawClient server(port);
          std::jthread back([&] { pass(server, client, answers_, [](std::string&) {}); });
          pass(client, server, heard_, change);
        }) {}

  int port() const { return listener_.port(); }
  /// What the client and the server sent, once both have ended.
  std::pair<std::string, std::string> heard() {
    thread_.join();
    return {heard_, answers_};
  }

 private:
  static void pass(const RawClient& from, const RawClient& to, std::string& kept,
                   const Change& change) {
    for (;;) {
      std::string piece = from.received();
      kept += piece;
      if (piece.empty()) return to.end();
      change(piece);
      to.send(piece);
    }
  }

  ForeignListener listener_;
  std::string heard_, answers_;
  std::thread thread_;
};

TEST(StoreTls, WhatIsHeardOnTheWireIsOfNoUse) {
  Job job(2, secret_of(kSecret));
  Eavesdropper wire(job.first.port());
  const std::string key = "a key of this test", value = "a value of this test";
  {
    TcpStore::Options options = job.options(1);
    options.port = wire.port();
    StoreConnection rank(options, StoreConnection::Clock::now() + kPatience);
    EXPECT_EQ(rank.ask({"set", key, value}, StoreConnection::Clock::now() + kPatience)[0], "ok");
    EXPECT_EQ(rank.ask({"get", "0", key}, StoreConnection::Clock::now() + kPatience)[1], value);
  }
  const auto [heard, answers] = wire.heard();
  for (const std::string& text : {heard, answers}) {
    EXPECT_GT(text.size(), 100U);
    for (const std::string& hidden : {key, value, kSecret}) {
      EXPECT_EQ(text.find(hidden), std::string::npos) << hidden;
    }
  }
  const RawClient thief(job.first.port());
  thief.send(heard);
  EXPECT_TRUE(thief.is_closed());
  check_completes(job);
}

TEST(StoreTls, AByteThatIsChangedOnItsWayEndsTheConnection) {
  Job job(2, secret_of(kSecret));
  std::atomic<bool> changes{false};
  Eavesdropper wire(job.first.port(), [&](std::string& piece) {
    if (changes) piece.back() = static_cast<char>(piece.back() ^ 1);
  });
  {
    TcpStore::Options options = job.options(1);
    options.port = wire.port();
    StoreConnection rank(options, StoreConnection::Clock::now() + kPatience);
    changes = true;
    EXPECT_THROW(
        static_cast<void>(rank.ask({"set", "a", "1"}, StoreConnection::Clock::now() + kPatience)),
        boost::system::system_error);
  }
  wire.heard();
  EXPECT_THAT(error_of([&] { static_cast<void>(job.first.get("a", 10ms)); }),
              HasSubstr("rank 1 has not come within 10 ms"));
  check_completes(job);
}

/// The error of a rank that finds `answer` in rank 0's place.
template <typename Answer>
std::string error_before(const Answer& answer) {
  const ForeignListener stranger;
  std::jthread server([&] { answer(stranger.accepted()); });
  return error_of([&] {
    TcpStore store({.host = "127.0.0.1",
                    .port = stranger.port(),
                    .rank = 1,
                    .world = 2,
                    .timeout = kPatience,
                    .secret = secret_of(kSecret)});
  });
}

TEST(StoreTls, AStrangerInRankZerosPlaceIsNotTrusted) {
  const auto foreign = AllOf(HasSubstr("[rank 1] rendezvous at 127.0.0.1:"),
                             HasSubstr("what answers there is another program"));
  EXPECT_THAT(error_before([](const RawClient& client) {
                client.send("HTTP/1.1 400 Bad Request\r\n");
                EXPECT_TRUE(client.is_closed());
              }),
              foreign);
  // TLS by a certificate, whatever the rank has offered.
  EXPECT_THAT(error_before([](RawClient client) {
                boost::asio::ssl::context context(boost::asio::ssl::context::tls_server);
                certify(context.native_handle());
                SSL* const connection = ::SSL_new(context.native_handle());
                ::SSL_set_fd(connection, client.descriptor());
                EXPECT_LE(::SSL_accept(connection), 0);
                ::SSL_free(connection);
              }),
              foreign);
}

TEST(StoreTls, AWrongProofIsAnotherSecretByEveryNameOfIt) {
  const auto failure = [](int reason) {
    return failure_of({static_cast<int>(ERR_PACK(ERR_LIB_SSL, 0, reason)),
                       boost::asio::error::get_ssl_category()});
  };
  for (const int reason : {SSL_R_BINDER_DOES_NOT_VERIFY, SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER,
                           SSL_R_TLSV1_ALERT_DECRYPT_ERROR}) {
    EXPECT_EQ(failure(reason), HandshakeFailure::other_secret) << reason;
  }
  EXPECT_EQ(failure(SSL_R_WRONG_VERSION_NUMBER), HandshakeFailure::other_protocol);
}

}  // namespace
}  // namespace zero::testing
