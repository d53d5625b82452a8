// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The messages between a TcpStore and its server, inside TLS (launch/rendezvous/store/tls.h). A
/// message is a few strings; a length in four bytes, little-endian, precedes each message and each
/// string.
///
///   request                            answer
///   iam VERSION RANK WORLD JOB         ok | refused WHY     begins every connection
///   hello [PROOF]                      ok | refused WHY     the rank's first connection
///   set KEY VALUE                      ok | refused WHY
///   wait MILLISECONDS KEY...           ok | missing ABSENT KEY... | lost HOW KEY...
///   get MILLISECONDS KEY...            values VALUE... | missing ABSENT KEY... | lost HOW KEY...
///   lost?                              ok | lost HOW RANK ended|unreachable|reset ...
///   bye                                ok                   the rank ends in good order
///
/// ABSENT lists the ranks that never came; empty if all did. HOW tells of the rank that was lost
/// first; those behind it are in the order of their losses. A long list of values is cut short: the
/// client asks for the rest. A rank whose first hello had a PROOF, which it alone knows, may say it
/// again on a new connection, which takes the place of the one before: the rank is lost no more. So
/// may one that has said bye and lost the answer, and stays a rank that has ended in good order.
/// A client asks once the answer to its last request has come; its wait ends if it leaves.
namespace zero::store_wire {

using Message = std::vector<std::string>;
using Length = std::uint32_t;

/// whole_number(). Throws zero::Error for another text, with a message that does not repeat it.
std::int64_t number(std::string_view text, std::int64_t least, std::int64_t most);

/// The largest message, in bytes; a larger one is not from this protocol.
inline constexpr std::uint32_t kLargest = 64U << 20U;
/// The largest first message of a connection, whose client has not said which rank it is.
inline constexpr std::uint32_t kLargestIntroduction = 4096;
/// The most strings in a message: as many ranks as a job may have, and a few.
inline constexpr std::size_t kMostParts = (std::size_t{1} << 20U) + 8;
/// Keys of a get or a wait at most, and their bytes with their lengths: the answer repeats those
/// that are missing.
inline constexpr std::size_t kMostKeys = kMostParts - 2;
inline constexpr std::size_t kMostKeyBytes = kLargest - 4096;
inline constexpr std::int64_t kLongestWait = std::int64_t{1} << 40;  ///< milliseconds: 35 years

/// Encodes a message. Throws zero::Error if the result is longer than kLargest.
std::string body_of(const Message& message);
/// A body preceded by its length.
std::string framed(const Message& message);
/// Decodes a body. Throws zero::Error if the body is not a message.
Message unframed(std::string_view body);

/// Splits a stream of bytes into bodies. Allocates only for the bytes received, however large a
/// length they announce.
class FrameReader {
 public:
  /// `largest`: the limit of a body in bytes.
  explicit FrameReader(std::uint32_t largest) : largest_(largest) {}

  /// Changes the limit.
  void allow(std::uint32_t largest) { largest_ = largest; }
  void append(std::string_view bytes) { pending_ += bytes; }
  /// Whether all bytes have been given out: the stream stands between two bodies.
  bool empty() const { return pending_.empty(); }
  /// The next body, once complete. Throws zero::Error as soon as the announced length exceeds the
  /// limit.
  std::optional<std::string> next();

 private:
  std::uint32_t largest_;
  std::string pending_;
};

/// The version of the messages; ranks of another are told so.
inline constexpr std::string_view kVersion = "zero-store-7";
inline constexpr int kMostRanks = 1 << 20;
/// The longest job name, and the longest proof, in bytes.
inline constexpr std::size_t kMostJobBytes = 256;
inline constexpr std::size_t kMostProofBytes = 256;

/// The rank, world and job that a client claims.
struct Identity {
  int rank = 0;
  int world = 1;
  std::string job{};  ///< its name; empty if the launcher gave none
};

/// The first message of a connection: iam VERSION RANK WORLD JOB.
Message introduction_of(const Identity& identity);
/// The client of an introduction. Throws zero::Error if the message is none, or of another version.
Identity introduced(const Message& message);

}  // namespace zero::store_wire
