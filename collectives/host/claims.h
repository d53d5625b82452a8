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

// Messages of a rank to its peers through memory that every process of the group can write, and the
// checks of them. A place or a length that another process wrote is first read, once, to memory of
// this process and compared with the range that it must lie in. A faulty or hostile rank causes an
// error that names that rank, and cannot make this process read or write memory outside of what the
// group shares.
namespace zero::host {

/// How peers reach a rank's values.
enum class DataPath : std::uint32_t {
  posted,  ///< on the board
  direct,  ///< in place, in the rank's region
  staged,  ///< copied to the rank's region part by part
  shared,  ///< not read by peers: the rank itself gathers to memory that all ranks share
};

/// A row of a notice's table, for calls with one slice per rank.
struct Entry {
  std::int64_t offset = 0;    ///< bytes; posted: in the notice's body; direct: in the region
  std::int64_t count = 0;     ///< elements
  std::int64_t expected = 0;  ///< elements of that rank, in all_to_all
};

/// The place to which a rank gathers; follows the values in its notice.
struct Destination {
  std::int64_t offset = -1;  ///< bytes, of the slices' buffer in the rank's region; -1: elsewhere
  std::uint64_t layout = 0;  ///< equal if slices begin at the same places
  std::uint32_t memory = 0;  ///< number of the shared memory that `offset` is in; 0: none
  std::uint32_t there = 0;   ///< nonzero: its own slice is in place
};

/// A rank's description of the values that it gives to this rank; not trusted.
struct PeerDescriptor {
  DataPath reach = DataPath::posted;
  std::uint64_t agreement = 0;  ///< equal on all ranks that make the same call
  std::int64_t offset = 0;      ///< bytes; posted: in the notice's body; direct: in its region
  std::int64_t count = 0;       ///< elements
};

/// The same values as this rank's own arguments describe them.
struct ExpectedDescriptor {
  int rank = 0;                          ///< the rank that gives them, as errors name it
  std::int64_t count = 0;                ///< elements
  std::int64_t element = 1;              ///< bytes
  std::int64_t body = 0;                 ///< bytes of a notice's body
  std::int64_t region = 0;               ///< bytes of the rank's region
  DataPath farthest = DataPath::staged;  ///< shared: only in an all_gather
};

/// Reads a word that another process may be writing; the compiler cannot repeat the read.
template <typename T>
T read_once(const T& shared) {
  static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
  return *const_cast<const volatile T*>(&shared);
}
Entry read_once(const Entry& shared);
Destination read_once(const Destination& shared);

/// Whether bytes [offset, offset + bytes) lie in [0, room); correct for all numbers, without
/// overflow.
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

/// Throws zero::Error unless a claim matches the awaited values and places them where their rank
/// may keep values.
void check_claim(const PeerDescriptor& claim, const ExpectedDescriptor& awaited);
/// Throws zero::Error unless `extent` bytes at the destination lie in the region of rank `rank`, or
/// the destination has no place.
void check_destination(const Destination& destination, int rank, std::int64_t extent,
                       std::int64_t region);
/// Throws zero::Error unless the counts in rank `rank`'s row for rank `peer`, of elements of
/// `element` bytes, could fit in memory.
void check_counts(const Entry& entry, int rank, int peer, std::int64_t element);

/// Reads from rank `rank`'s line the offset of `bytes` bytes in its region. Throws zero::Error
/// unless the line is a number and the bytes lie in the region.
std::int64_t parse_offset(std::string_view line, int rank, std::int64_t bytes, std::int64_t region);

/// Writes a call for peers to read; long names and lists are cut. `to` is a notice's body.
void write_call(const Call& call, std::span<std::byte> to);
/// Reads the output of write_call(); of other bytes, as much as makes sense. `from` must be memory
/// of this process.
Call read_call(std::span<const std::byte> from);

/// The text before the first zero byte, or all of it, without control characters.
std::string text_in(std::span<const char> shared);

}  // namespace zero::host
