// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "launch/rendezvous/store/wire.h"

namespace zero::store_wire {

/// The version of the messages; ranks of another are told so.
inline constexpr std::string_view kVersion = "zero-store-5";
inline constexpr int kMostRanks = 1 << 20;
/// The longest job name, in bytes.
inline constexpr std::size_t kMostJobBytes = 256;

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

/// Parses all of `text` as a whole number in [least, most]. Throws zero::Error otherwise, with a
/// message that does not repeat the text.
std::int64_t number(std::string_view text, std::int64_t least, std::int64_t most);

}  // namespace zero::store_wire
