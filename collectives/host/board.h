// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/host/claims.h"
#include "collectives/host/meeting.h"
#include "collectives/host/region.h"

namespace zero::host {

/// The head of a rank's notice, which its peers read before its values.
struct Notice {
  std::atomic<std::uint32_t> came;  ///< the last meeting its rank arrived at
  DataPath reach;
  std::uint64_t agreement;  ///< equal on all ranks that make the same call
  std::int64_t offset;      ///< direct: place of the values in the rank's region
};

/// The memory that all ranks of one host write: a meeting, and a place per rank for two notices:
/// this call's, and the last one's, which slower peers may still read. An anonymous file that every
/// rank has mapped. A rank's arrival counter shares a cache line with the start of its notice, so
/// that a peer that waits for the counter already has what it reads next.
class Board {
 public:
  /// Bytes of values that fit in a notice.
  static constexpr std::int64_t kPosted = std::int64_t{8} << 10;

  /// Maps the file behind `descriptor`, which has bytes_for(ranks) bytes and began as zeros, for
  /// rank `rank` of `ranks`.
  Board(int descriptor, int rank, int ranks);
  static std::int64_t bytes_for(int ranks);

  /// Switches to the next call's notices. Every rank must call it equally often.
  void turn() { meeting_.words().side = 1 - meeting_.words().side; }
  /// A rank's notice of this call: written by that rank before a meeting, read by all after it.
  Notice& notice(int rank) const { return meeting_.words().notice(rank); }
  /// The rest of the notice: body_bytes() bytes, aligned for any element.
  std::byte* body(int rank) const { return reinterpret_cast<std::byte*>(&notice(rank) + 1); }
  std::int64_t body_bytes() const {
    return meeting_.words().notice_bytes - static_cast<std::int64_t>(sizeof(Notice));
  }

  /// This rank arrives at the next meeting.
  void arrive() { meeting_.arrive(); }
  /// Whether all ranks have arrived at it.
  bool all_came() { return meeting_.all_came(); }
  /// Whether `rank` has arrived at it.
  bool came(int rank) const { return meeting_.has_come(rank); }
  /// Sleeps until all have come, a rank has failed, or `longest` (below a second) has passed.
  void sleep(std::chrono::nanoseconds longest) { meeting_.sleep(longest); }

  /// Records that a rank failed, and why; the first failure is kept. Wakes sleeping ranks.
  void fail(std::string_view why);
  bool failed() const { return meeting_.failed(); }
  /// The `why` of the first failure, once failed().
  std::string failure() const;
  /// Records that `rank` comes to no later meeting.
  void leave(int rank);
  bool left(int rank) const;

 private:
  static constexpr std::int64_t kLine = 64;

  /// All zeros are a valid Head: no rank sleeps, none has failed. The three words are those of
  /// Meeting.
  struct Head {
    alignas(kLine) std::atomic<std::uint32_t> sleepers;
    std::atomic<std::uint32_t> wakes;
    std::atomic<std::uint32_t> failed;
    alignas(kLine) std::array<char, 1024> words;
  };

  /// The words of the meeting, in the mapped file.
  struct Words {
    Head* head;
    std::byte* first_place;    // the first rank's first notice
    std::int64_t place_bytes;  // of a rank: a line for "has left", and two notices
    std::int64_t notice_bytes;
    int side = 0;

    Notice& notice(int rank) const {
      return *reinterpret_cast<Notice*>(first_place + rank * place_bytes + side * notice_bytes);
    }
    std::atomic<std::uint32_t>& came(int rank) const { return notice(rank).came; }
    std::atomic<std::uint32_t>& sleepers() const { return head->sleepers; }
    std::atomic<std::uint32_t>& wakes() const { return head->wakes; }
    std::atomic<std::uint32_t>& failed() const { return head->failed; }
    static void wait(std::atomic<std::uint32_t>& word, std::uint32_t value,
                     std::chrono::nanoseconds longest);
    static void wake_all(std::atomic<std::uint32_t>& word);
  };

  static std::int64_t notice_bytes_for(int ranks);
  Words words_for(int ranks) const;
  Head& head() const { return *meeting_.words().head; }
  std::atomic<std::uint32_t>& left_flag(int rank) const;

  Span span_;
  Meeting<Words> meeting_;
};

}  // namespace zero::host
