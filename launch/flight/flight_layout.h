// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace zero::flight {

// A flight file: header, groups, ranks of groups (i32), names, records, culprits of last words
// (i32), last words, stack, without gaps. Numbers are in the host's byte order. Fields that change
// while other processes read are accessed through read() and write() alone.

inline constexpr std::array<char, 8> kMagic{'Z', 'E', 'R', 'O', 'F', 'L', 'T', '\n'};
inline constexpr std::uint32_t kVersion = 4;
/// The most of anything that a reader believes in.
inline constexpr std::uint32_t kMost = 1U << 16;
/// The latest times, of CLOCK_MONOTONIC and of the wall, that a reader believes in: sums of a few
/// do not overflow.
inline constexpr std::int64_t kLatest = std::int64_t{1} << 59;
inline constexpr std::int64_t kLatestWall = std::int64_t{1} << 61;

/// How many of each a file has room for.
struct Sizes {
  std::uint32_t records = 8192;       ///< the newest stay
  std::uint32_t names = 2048;         ///< later ones are the first, "others"
  std::uint32_t groups = 64;          ///< collectives of later ones are not recorded
  std::uint32_t group_ranks = 16384;  ///< of all groups; those of later groups are unknown
  std::uint32_t words = 1U << 14;     ///< bytes of the last words, an own error behind the text
  std::uint32_t stack = 1U << 16;     ///< bytes of the stack
};

/// The culprits of last words that a file has room for; more are in the text alone.
inline constexpr std::uint32_t kMostCulprits = 256;

/// Bytes of a name with the 0 at its end; a longer name is cut.
inline constexpr std::size_t kNameBytes = 64;
using Name = std::array<char, kNameBytes>;

// Numbers of names are stored plus 1; 0: none.

/// LastWords, whose texts and culprits have places of their own.
struct Words {
  std::uint32_t kind;       // LastWords::Kind, written last; 0: none, or being written
  std::uint32_t text;       // bytes in use
  std::uint32_t own_error;  // bytes in use, behind the text
  std::uint32_t what;       // FoundFault
  std::uint32_t culprits;   // in use
  std::uint32_t waited;     // milliseconds
};
static_assert(sizeof(Words) == 24);

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
  std::int64_t created_monotonic;  // CLOCK_MONOTONIC at that moment
  Name host;
  Name boot;
  // What follows changes.
  std::uint64_t records;  // written so far
  std::uint32_t names;    // in use
  std::uint32_t groups;   // in use
  Words words;
  std::uint32_t stack;  // bytes in use
  std::uint32_t over;   // 1: ended in good order
  std::int64_t step;
  std::int64_t mean_step;         // nanoseconds; 0: unknown
  std::uint64_t phase;            // name
  std::uint64_t compute;          // name << 8 | Phase
  std::int64_t changed;           // by the rank itself
  std::int64_t last_words_time;   // or that of the stack, if that is later
  std::int64_t disk_calls_begun;  // files::DiskCalls
  std::int64_t disk_calls_ended;
};
static_assert(sizeof(Header) % 8 == 0);

struct Group {
  std::uint64_t name;
  std::uint32_t size;        // ranks; 0: unknown
  std::uint32_t first_rank;  // among the ranks of groups
  std::uint64_t submitted;   // number of the newest collective
  std::uint64_t ended;       // number of the newest one that has ended
};
static_assert(sizeof(Group) == 32);

enum class Kind : std::uint8_t { none, collective, host_call, phase, compute };

/// Added to the Operation of a collective: a disk decides how long its ranks wait.
inline constexpr std::uint8_t kDiskDecides = 0x80;

struct Record {
  std::uint64_t ticket = 0;   // its number from 1, written last; 0: being written
  std::uint64_t what = 0;     // Kind | Operation or Phase << 8 | group << 16 | name << 32
  std::uint64_t number = 0;   // of a collective
  std::int64_t bytes = 0;     // of a collective
  std::int64_t enqueued = 0;  // of a collective; else when it was written
  std::int64_t started = 0;
  std::int64_t ended = 0;
  std::int64_t step = -1;
};
static_assert(sizeof(Record) == 64);

/// Record::what, and its parts.
constexpr std::uint64_t what_of(Kind kind, std::uint8_t detail, std::uint32_t group,
                                std::uint64_t name) {
  return static_cast<std::uint64_t>(kind) | std::uint64_t{detail} << 8 |
         std::uint64_t{group & 0xffffU} << 16 | name << 32;
}
constexpr Kind kind_of(const Record& record) { return static_cast<Kind>(record.what & 0xff); }
constexpr std::uint64_t detail_of(const Record& record) { return record.what >> 8 & 0xff; }
constexpr std::uint32_t group_of(const Record& record) {
  return static_cast<std::uint32_t>(record.what >> 16 & 0xffff);
}
constexpr std::uint64_t name_in(const Record& record) { return record.what >> 32; }

/// Where the parts begin, in bytes.
struct Offsets {
  explicit constexpr Offsets(const Sizes& sizes)
      : groups(sizeof(Header)),
        group_ranks(groups + std::uint64_t{sizes.groups} * sizeof(Group)),
        names(group_ranks + (std::uint64_t{sizes.group_ranks} + 1) / 2 * 8),
        records(names + std::uint64_t{sizes.names} * kNameBytes),
        culprits(records + std::uint64_t{sizes.records} * sizeof(Record)),
        words(culprits + std::uint64_t{kMostCulprits} * sizeof(std::int32_t)),
        stack(words + sizes.words),
        end(stack + sizes.stack) {}
  std::uint64_t groups, group_ranks, names, records, culprits, words, stack, end;
};

template <typename T>
T read(const T& field) {
  return std::atomic_ref<T>(const_cast<T&>(field)).load(std::memory_order_acquire);
}

template <typename T>
void write(T& field, T value) {
  std::atomic_ref<T>(field).store(value, std::memory_order_release);
}

}  // namespace zero::flight
