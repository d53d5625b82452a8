// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <string>

#include "launch/rendezvous/job_secret.h"

namespace zero {

using StoreSocket = boost::asio::generic::stream_protocol::socket;
using StoreStream = boost::asio::ssl::stream<StoreSocket>;

/// TLS 1.3 between the ranks of a job, by a key that follows from the job's secret: a pre-shared
/// key with an ephemeral exchange (RFC 8446, section 2.2), no certificates. The handshake proves to
/// each end that the other knows the secret; messages behind it are encrypted.
class StoreTls {
 public:
  enum class End { client, server };

  /// Throws zero::Error if OpenSSL refuses.
  StoreTls(const JobSecret& secret, End end);
  StoreTls(const StoreTls&) = delete;
  StoreTls& operator=(const StoreTls&) = delete;

  /// For streams that end before this object.
  boost::asio::ssl::context& context() { return context_; }

 private:
  std::string key_;
  boost::asio::ssl::context context_;
};

/// Why a handshake failed.
enum class HandshakeFailure {
  other_secret,    ///< the ends know different secrets
  other_protocol,  ///< the other end does not speak TLS by a pre-shared key
  connection,      ///< it was cut or silent
};
HandshakeFailure failure_of(const boost::system::error_code& error);

}  // namespace zero
