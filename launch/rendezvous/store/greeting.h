// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launch/rendezvous/job_secret.h"
#include "launch/rendezvous/store/wire.h"

/// How the two ends of a connection of a store prove to each other that they know the job's secret,
/// without sockets. The server speaks first; nothing that it says before the caller's proof depends
/// on the secret.
///
///   server   MAGIC SERVER_NONCE
///   caller   MAGIC RANK WORLD JOB CALLER_NONCE PROOF
///   server   proven PROOF | unproven
///
/// A proof is the HMAC, under the secret, of a purpose (whose proof this is), MAGIC, rank, world,
/// job and both nonces. The nonces are fresh, so a proof is of use once; the purposes differ, so
/// neither end's proof serves the other. HMACs of two further purposes are the keys of the session,
/// one a direction.
namespace zero::store_wire {

inline constexpr std::string_view kMagic = "zero-store-3";
/// Bytes of a greeting's message at most.
inline constexpr std::uint32_t kLargestGreeting = 4096;
inline constexpr int kMostRanks = 1 << 20;
/// Bytes of a job's name at most.
inline constexpr std::size_t kMostJobBytes = 256;

/// What a caller says of itself.
struct Caller {
  int rank = 0;
  int world = 1;
  std::string job{};  ///< its name; empty if the launcher gave none
};

/// The whole number in [least, most] that `text` is, all of it. Throws zero::Error otherwise; the
/// message does not repeat the text.
std::int64_t number(std::string_view text, std::int64_t least, std::int64_t most);

/// Messages after the greeting: each body carries an HMAC of itself and of how many came before it
/// in its direction, so that none can be changed, repeated, left out or put in by others. Everybody
/// on the way can read them.
class Session {
 public:
  Session(std::string sending_key, std::string receiving_key)
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

/// The server's end of one greeting.
class ServerGreeting {
 public:
  struct Welcome {
    Caller caller;
    std::string frame;  ///< to be sent: the server's proof
    Session session;
  };

  /// `nonce`: fresh_nonce(), but in tests. The secret must outlive the greeting.
  ServerGreeting(const JobSecret& secret, std::string nonce)
      : secret_(secret), nonce_(std::move(nonce)) {}

  /// The frame that the server begins with.
  std::string banner() const;
  /// Judges what the caller answered; nothing if it does not know the secret. Throws zero::Error if
  /// it is no greeting.
  std::optional<Welcome> judge(std::string_view body) const;
  /// The frame for a caller that does not know the secret.
  static std::string refusal();

 private:
  const JobSecret& secret_;
  std::string nonce_;
};

/// The caller's end of one greeting.
class CallerGreeting {
 public:
  /// `nonce`: fresh_nonce(), but in tests. The secret must outlive the greeting.
  CallerGreeting(const JobSecret& secret, Caller caller, std::string nonce)
      : secret_(secret), caller_(caller), nonce_(std::move(nonce)) {}

  /// The frame that answers the server's banner. Throws zero::Error if that is none of ours.
  std::string answer(std::string_view banner);
  /// The session, if the server knows the secret; nothing if it does not, or says that the caller
  /// does not. Throws zero::Error if what it says is no greeting. answer() comes first.
  std::optional<Session> conclude(std::string_view body) const;

 private:
  const JobSecret& secret_;
  Caller caller_;
  std::string nonce_;
  std::string server_nonce_;
};

}  // namespace zero::store_wire
