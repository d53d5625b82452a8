// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The messages of a TcpStore and its server once the handshake is done
/// (launch/rendezvous/store/handshake.h): a few strings each, each message and each string
/// behind its length in four bytes, the lowest first.
///
///   request                            answer
///   hello                              ok | refused WHY     the rank's first connection
///   set KEY VALUE                      ok | refused WHY
///   wait MILLISECONDS KEY...           ok | missing ABSENT KEY... | lost HOW KEY...
///   get MILLISECONDS KEY...            values VALUE... | missing ABSENT KEY... | lost HOW KEY...
///   lost?                              ok | lost HOW
///   bye                                ok                   the rank ends in good order
///
/// ABSENT says which ranks never came; it is empty if all did. A long list of values ends early:
/// the client asks for the rest.
/// A client asks once the answer to its last request has come; its wait ends if it leaves.
namespace zero::store_wire {

using Message = std::vector<std::string>;
using Length = std::uint32_t;

/// The whole number in [least, most] that `text` is, all of it; nothing if it is none.
std::optional<std::int64_t> whole_number(std::string_view text, std::int64_t least,
                                         std::int64_t most);

/// Bytes of a message at most: more is no message of ours.
inline constexpr std::uint32_t kLargest = 64U << 20U;
/// Strings of a message at most: as many ranks as a job may have, and a few.
inline constexpr std::size_t kMostParts = (std::size_t{1} << 20U) + 8;
/// Keys of a get or a wait at most, and their bytes with their lengths: the answer repeats those
/// that are missing.
inline constexpr std::size_t kMostKeys = kMostParts - 2;
inline constexpr std::size_t kMostKeyBytes = kLargest - 4096;
inline constexpr std::int64_t kLongestWait = std::int64_t{1} << 40;  ///< milliseconds: 35 years

/// The message as one string. Throws zero::Error if it is longer than kLargest.
std::string body_of(const Message& message);
/// A body with its length before it. Throws zero::Error if it is longer than a message may be.
std::string framed_body(std::string_view body);
inline std::string framed(const Message& message) { return framed_body(body_of(message)); }
/// The message of a body. Throws zero::Error if it is none.
Message unframed(std::string_view body);

/// Cuts a stream of bytes into bodies. Holds only the bytes that came, however large a length they
/// announce.
class FrameReader {
 public:
  /// `largest`: bytes of a body at most.
  explicit FrameReader(std::uint32_t largest) : largest_(largest) {}

  void allow(std::uint32_t largest) { largest_ = largest; }
  void append(std::string_view bytes) { pending_ += bytes; }
  /// The next body, once all of it has come. Throws zero::Error as soon as the announced length is
  /// more than is allowed.
  std::optional<std::string> next();

 private:
  std::uint32_t largest_;
  std::string pending_;
};

}  // namespace zero::store_wire
