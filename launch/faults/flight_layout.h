// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace zero::flight {

// A flight file: header, groups, ranks of groups, names, records, last words, stack. All numbers
// are of the host's byte order; fields that change while others read are read and written through
// std::atomic_ref.

inline constexpr std::array<char, 8> kMagic{'Z', 'E', 'R', 'O', 'F', 'L', 'T', '\n'};
inline constexpr std::uint32_t kVersion = 1;

/// How many of each a file has room for.
struct Sizes {
  std::uint32_t records = 8192;       ///< the newest stay
  std::uint32_t names = 2048;         ///< what comes later is kName[0], "others"
  std::uint32_t groups = 64;          ///< collectives of later ones are not recorded
  std::uint32_t group_ranks = 16384;  ///< of all groups together; those of later ones are unknown
  std::uint32_t words = 1 << 14;      ///< bytes of the last words
  std::uint32_t stack = 1 << 16;      ///< bytes
};

/// Names are cut at this many bytes less one.
inline constexpr std::size_t kNameBytes = 64;
using Name = std::array<char, kNameBytes>;

struct Header {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t world;
  std::uint32_t rank;
  std::uint32_t reserved;
  Sizes sizes;
  std::uint64_t run;
  std::int64_t process;
  std::int64_t created;            // CLOCK_REALTIME, nanoseconds
  std::int64_t created_monotonic;  // the same moment of CLOCK_MONOTONIC
  std::array<char, 64> host;
  std::array<char, 64> boot;

  // What follows changes.
  std::uint64_t records;  // written so far, all laps
  std::uint32_t names;    // in use
  std::uint32_t groups;   // in use
  std::uint32_t words;    // bytes in use
  std::uint32_t stack;    // bytes in use
  std::int64_t step;
  std::int64_t mean_step;  // nanoseconds; 0: unknown
  std::uint64_t phase;     // name
  std::uint64_t compute;   // name, 0: none; shifted by 8, with the Phase
  std::int64_t changed;
  std::uint64_t over;  // 1: ended in good order
};

struct Group {
  std::uint32_t name;        // 0: unnamed
  std::uint32_t size;        // ranks; 0: unknown
  std::uint32_t first_rank;  // in the ranks of groups
  std::uint32_t reserved;
  std::uint64_t submitted;  // number of the newest collective
  std::uint64_t ended;      // number of the newest that has ended
};

enum class Kind : std::uint8_t { none, collective, host_call, phase, compute };

/// One record. `ticket` is its number from 1, written last; 0 while it is being written.
struct Record {
  std::uint64_t ticket;
  std::uint64_t what;     // Kind, 8 bits; Operation or Phase, 8 bits; group, 16 bits; name, 32 bits
  std::uint64_t number;   // of a collective
  std::int64_t bytes;     // of a collective
  std::int64_t enqueued;  // of a collective; when any other record was written
  std::int64_t started;
  std::int64_t ended;
  std::uint64_t place;  // stream, 16 bits; step + 1, 48 bits
};
static_assert(sizeof(Record) == 64);

}  // namespace zero::flight
