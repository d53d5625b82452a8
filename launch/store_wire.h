// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// What a TcpStore and its server say to each other: messages of a few strings, each message and
/// each string behind its length in four bytes, the lowest first.
///
///   request                            answer
///   hello MAGIC RANK WORLD  (first)    ok | refused WHY
///   also MAGIC              (first)    ok             a further connection of a rank
///   set KEY VALUE                      ok
///   wait MILLISECONDS KEY...           ok | missing KEY... | lost HOW KEY...
///   get MILLISECONDS KEY               value VALUE | missing KEY | lost HOW KEY
///   lost?                              ok | lost HOW
///   bye                                ok             the rank ends in good order
namespace zero::store_wire {

using Message = std::vector<std::string>;
using Length = std::array<unsigned char, 4>;

inline constexpr std::string_view kMagic = "zero-store-1";
/// Bytes of a message at most: more is no message of ours.
inline constexpr std::uint32_t kLargest = 64U << 20U;

/// The message with its length before it. Throws zero::Error where it is longer than kLargest.
std::string framed(const Message& message);
/// The length that begins a message. Throws zero::Error beyond kLargest.
std::uint32_t length_of(const Length& bytes);
/// The message behind its length. Throws zero::Error where it is none.
Message unframed(std::string_view body);

}  // namespace zero::store_wire
