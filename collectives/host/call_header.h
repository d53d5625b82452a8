// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

// What a rank writes about a call for its peers, in memory that all ranks of the host map. The
// ranks trust it: each of them may write the memory of every other one anyway.
namespace zero::host {

/// How peers read a rank's values.
enum class DataPath : std::uint32_t {
  inlined,  ///< behind the header
  direct,   ///< in place, in the rank's region
  staged,   ///< copied to the rank's region part by part
  shared,   ///< not at all: the rank itself gathers to memory that all ranks share
};

/// The head of a rank's part of a call; values or a table follow.
struct CallHeader {
  std::atomic<std::uint32_t> arrivals;  ///< the last round of the barrier that its rank arrived at
  DataPath path;
  std::uint64_t agreement;  ///< equal on all ranks that make the same call
  std::int64_t offset;      ///< bytes; direct: of the values in the rank's region; inlined: 0
};

/// A row of a rank's table, for calls with one slice per rank.
struct TableEntry {
  std::int64_t offset = 0;    ///< bytes; inlined: behind the header; direct: in the region
  std::int64_t count = 0;     ///< elements
  std::int64_t expected = 0;  ///< elements of that rank, in all_to_all
};

/// The buffer to which a rank gathers; follows the values behind its header.
struct Destination {
  std::int64_t offset = -1;    ///< bytes, of the slices' buffer in the rank's region; -1: elsewhere
  std::uint64_t layout = 0;    ///< equal if slices begin at the same places
  std::uint32_t memory = 0;    ///< number of the shared memory that `offset` is in; 0: none
  std::uint32_t in_place = 0;  ///< nonzero: its own slice is there already
};

}  // namespace zero::host
