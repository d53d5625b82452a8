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
/// know the job's secret. The server begins; no message that it sends before the client's proof
/// depends on the secret.
///
///   server   MAGIC SERVER_NONCE
///   client   MAGIC RANK WORLD JOB CLIENT_NONCE PROOF
///   server   proven PROOF | unproven
///
/// A proof is the HMAC, under the secret, of a purpose (which end proves), MAGIC, rank, world, job
/// and both nonces. The nonces are fresh, so a proof cannot be replayed; the purposes differ, so
/// neither end's proof is valid for the other. HMACs with two further purposes are the keys of the
/// channel, one per direction.
namespace zero::store_wire {

inline constexpr std::string_view kMagic = "zero-store-4";
/// The largest message of a handshake, in bytes.
inline constexpr std::uint32_t kLargestHandshake = 4096;
inline constexpr int kMostRanks = 1 << 20;
/// The longest job name, in bytes.
inline constexpr std::size_t kMostJobBytes = 256;

/// The rank, world and job that a client claims.
struct Identity {
  int rank = 0;
  int world = 1;
  std::string job{};  ///< its name; empty if the launcher gave none
};

/// Parses all of `text` as a whole number in [least, most]. Throws zero::Error otherwise, with a
/// message that does not repeat the text.
std::int64_t number(std::string_view text, std::int64_t least, std::int64_t most);

/// Messages after the handshake: each body carries an HMAC of itself and of the number of earlier
/// messages in its direction, so that nobody else can change, repeat, remove or add a message.
/// Messages are not encrypted.
class Channel {
 public:
  Channel(std::string sending_key, std::string receiving_key)
      : sending_key_(std::move(sending_key)), receiving_key_(std::move(receiving_key)) {}

  /// The frame for the next message to send.
  std::string sealed(const Message& message);
  /// The message in the next body received. Throws zero::Error if it is not from the other end.
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
    std::string frame;  ///< the server's proof, to be sent
    Channel channel;
  };

  /// `nonce` is fresh_nonce() except in tests. The secret must outlive the handshake.
  ServerHandshake(const JobSecret& secret, std::string nonce)
      : secret_(secret), nonce_(std::move(nonce)) {}

  /// The server's first frame.
  std::string challenge() const;
  /// Checks the client's response; nothing if the client does not know the secret. Throws
  /// zero::Error if the response is not a handshake.
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
  /// `nonce` is fresh_nonce() except in tests. The secret must outlive the handshake.
  ClientHandshake(const JobSecret& secret, Identity identity, std::string nonce)
      : secret_(secret), identity_(std::move(identity)), nonce_(std::move(nonce)) {}

  /// The answer to the server's challenge. Throws zero::Error if the challenge is another
  /// protocol's.
  std::string answer(std::string_view challenge);
  /// The channel; nothing if the server does not know the secret, or says that the client does not.
  /// Throws zero::Error if the message is not a handshake. Call after answer().
  std::optional<Channel> finish(std::string_view body) const;

 private:
  const JobSecret& secret_;
  Identity identity_;
  std::string nonce_;
  std::string server_nonce_;
};

}  // namespace zero::store_wire
