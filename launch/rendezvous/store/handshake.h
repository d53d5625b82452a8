// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launch/rendezvous/job_secret.h"
#include "launch/rendezvous/store/wire.h"

/// The handshake of a store's connection, without sockets: both ends prove to each other that they
/// know the job's secret. The server begins; nothing that the server sends before the client's
/// proof depends on the secret.
///
///   server   MAGIC SERVER_NONCE
///   client   MAGIC RANK WORLD JOB CLIENT_NONCE PROOF
///   server   proven PROOF | unproven
///
/// A proof is the HMAC, under the secret, of a purpose (whose proof this is), MAGIC, rank, world,
/// job and both nonces. The nonces are fresh, so a proof is of use once; the purposes differ, so
/// neither end's proof serves the other. HMACs of two further purposes are the keys of the channel,
/// one a direction.
namespace zero::store_wire {

inline constexpr std::string_view kMagic = "zero-store-4";
/// Bytes of a handshake's message at most.
inline constexpr std::uint32_t kLargestHandshake = 4096;
inline constexpr int kMostRanks = 1 << 20;
/// Bytes of a job's name at most.
inline constexpr std::size_t kMostJobBytes = 256;

/// The rank, world and job that a client claims.
struct Identity {
  int rank = 0;
  int world = 1;
  std::string job{};  ///< its name; empty if the launcher gave none
};

/// The whole number in [least, most] that `text` is, all of it. Throws zero::Error otherwise; the
/// message does not repeat the text.
std::int64_t number(std::string_view text, std::int64_t least, std::int64_t most);

/// Messages after the handshake: each body carries an HMAC of itself and of the number of messages
/// before it in its direction, so that others cannot change, repeat, remove or add a message.
/// Messages are not encrypted.
class Channel {
 public:
  Channel(std::string sending_key, std::string receiving_key)
      : sending_key_(std::move(sending_key)), receiving_key_(std::move(receiving_key)) {}

  /// The frame of a message to be sent next.
  std::string sealed(const Message& message);
  /// The message of the body that came next. Throws zero::Error if it is not the other end's.
  Message opened(std::string_view body);

 private:
  std::string sending_key_;
  std::string receiving_key_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

/// The server's end of one handshake.
class ServerHandshake {
 public:
  struct Accepted {
    Identity identity;
    std::string frame;  ///< to be sent: the server's proof
    Channel channel;
  };

  /// `nonce`: fresh_nonce(), but in tests. The secret must outlive the handshake.
  ServerHandshake(const JobSecret& secret, std::string nonce)
      : secret_(secret), nonce_(std::move(nonce)) {}

  /// The frame that the server begins with.
  std::string challenge() const;
  /// Checks the client's response; nothing if the client does not know the secret. Throws
  /// zero::Error if the response is no handshake.
  std::optional<Accepted> verify(std::string_view body) const;
  /// The frame for a client that does not know the secret.
  static std::string refusal();

 private:
  const JobSecret& secret_;
  std::string nonce_;
};

/// The client's end of one handshake.
class ClientHandshake {
 public:
  /// `nonce`: fresh_nonce(), but in tests. The secret must outlive the handshake.
  ClientHandshake(const JobSecret& secret, Identity identity, std::string nonce)
      : secret_(secret), identity_(std::move(identity)), nonce_(std::move(nonce)) {}

  /// The frame that answers the server's challenge. Throws zero::Error if it is another protocol.
  std::string answer(std::string_view challenge);
  /// The channel, if the server knows the secret; nothing if it does not, or says that the client
  /// does not. Throws zero::Error if the message is no handshake. answer() comes first.
  std::optional<Channel> finish(std::string_view body) const;

 private:
  const JobSecret& secret_;
  Identity identity_;
  std::string nonce_;
  std::string server_nonce_;
};

}  // namespace zero::store_wire
