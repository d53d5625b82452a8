// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "collectives/call.h"

// What a rank says to its peers through memory that every process of the group can write, and the
// checks of it. Nothing that another process wrote is used as a place or a length before it was
// read once, to memory of this process, and compared with the range that it must lie in. A rank
// that errs, or that is hostile, is an error that names it; memory outside of what the group shares
// is neither read nor written for it.
namespace zero::host {

/// How a rank's values are reached by its peers.
enum class Reach : std::uint32_t {
  posted,  ///< they are on the board
  direct,  ///< where they lie, in the rank's region
  staged,  ///< copied to the rank's region part by part
  shared,  ///< nowhere but by their own rank: it gathers to memory that all ranks share
};

/// A row of a notice's table, for calls with a slice for each rank.
struct Entry {
  std::int64_t offset = 0;    ///< bytes; posted: in the notice's body; direct: in the region
  std::int64_t count = 0;     ///< elements
  std::int64_t expected = 0;  ///< elements of that rank, in all_to_all
};

/// Where a rank wants what it gathers; behind the values in its notice.
struct Destination {
  std::int64_t offset = -1;  ///< bytes, of the slices' buffer in the rank's region; -1: elsewhere
  std::uint64_t layout = 0;  ///< equal where slices begin at the same places
  std::uint32_t memory = 0;  ///< in which shared memory it is, and the offset then; 0: none
  std::uint32_t there = 0;   ///< whether its own slice is in place
};

/// What a rank says of the values that it gives to this one.
struct Claim {
  Reach reach = Reach::posted;
  std::uint64_t agreement = 0;  ///< equal on all ranks that make the same call
  std::int64_t offset = 0;      ///< bytes; posted: in the notice's body; direct: in its region
  std::int64_t count = 0;       ///< elements
};

/// What this rank knows of the same values by itself.
struct Awaited {
  int rank = 0;                    ///< that gives them, as errors name it
  std::int64_t count = 0;          ///< elements
  std::int64_t element = 1;        ///< bytes
  std::int64_t body = 0;           ///< bytes of a notice's body
  std::int64_t region = 0;         ///< bytes of the rank's region
  Reach farthest = Reach::staged;  ///< shared: in an all_gather alone
};

/// Reads a word that another process may be writing: once, whatever the compiler would like.
template <typename T>
T read_once(const T& shared) {
  static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
  return *const_cast<const volatile T*>(&shared);
}
Entry read_once(const Entry& shared);
Destination read_once(const Destination& shared);

/// Whether bytes [offset, offset + bytes) lie in [0, room); any numbers.
constexpr bool in_range(std::int64_t offset, std::int64_t bytes, std::int64_t room) {
  return offset >= 0 && bytes >= 0 && bytes <= room && offset <= room - bytes;
}
[[noreturn]] void fail_range(std::string_view what, std::int64_t offset, std::int64_t bytes,
                             std::int64_t room);
/// Throws zero::Error unless in_range().
inline void check_range(std::string_view what, std::int64_t offset, std::int64_t bytes,
                        std::int64_t room) {
  if (!in_range(offset, bytes, room)) [[unlikely]]
    fail_range(what, offset, bytes, room);
}

/// Throws zero::Error unless the values of a claim are those that are awaited, and lie where their
/// rank may keep them.
void check_claim(const Claim& claim, const Awaited& awaited);
/// Throws zero::Error unless `extent` bytes of destination, if it has a place, lie in the region of
/// rank `rank`.
void check_destination(const Destination& destination, int rank, std::int64_t extent,
                       std::int64_t region);
/// Throws zero::Error unless rank `rank`'s row for rank `peer` has counts of `element` bytes that
/// memory can have.
void check_counts(const Entry& entry, int rank, int peer, std::int64_t element);

/// The offset in rank `rank`'s line, of `bytes` bytes in its region. Throws zero::Error unless the
/// line is a number and they lie in the region.
std::int64_t parse_offset(std::string_view line, int rank, std::int64_t bytes, std::int64_t region);

/// Writes a call for peers to read; long names and lists are cut. `to` is a notice's body.
void write_call(const Call& call, std::span<std::byte> to);
/// Reads what write_call() wrote; of anything else, as much as fits. `from` is of this process.
Call read_call(std::span<const std::byte> from);

/// The text before the first zero byte, or all of it, without control characters.
std::string text_in(std::span<const char> shared);

}  // namespace zero::host
