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

#include "collectives/host/region.h"

namespace zero::host {

/// How a rank's values are reached by its peers.
enum class Reach : std::uint32_t {
  posted,  ///< they are on the board
  direct,  ///< where they lie, in the rank's region
  staged,  ///< copied to the rank's region part by part
  common,  ///< nowhere but by their own rank: it gathers to memory that all ranks have in common
};

/// The head of a rank's notice: what its peers must know before they read its values.
struct Notice {
  std::atomic<std::uint32_t> came;  ///< the last meeting that its rank has come to
  Reach reach;
  std::uint64_t agreement;  ///< equal on all ranks that make the same call
  std::int64_t offset;      ///< direct: of the values in the rank's region
};

/// The memory that all ranks of one host write: a place to meet, and a place per rank for two
/// notices, this call's and the last one's, which slower peers may still read. An anonymous file
/// that every rank has mapped. A rank's arrival lies in the line that its notice begins in, so that
/// what a peer waits for brings what it reads next.
class Board {
 public:
  /// Bytes of values that a notice has room for.
  static constexpr std::int64_t kPosted = std::int64_t{8} << 10;

  /// Rank `rank` of `ranks`: maps the file behind `descriptor`, of bytes_for(ranks) bytes and zero
  /// at first.
  Board(int descriptor, int rank, int ranks);
  static std::int64_t bytes_for(int ranks);

  /// Turns to the next call's notices. Every rank does this as often.
  void turn() { side_ = 1 - side_; }
  /// A rank's notice of this call: written by its rank before a meeting, read by all after it.
  Notice& notice(int rank) const {
    return *reinterpret_cast<Notice*>(first_place_ + rank * place_bytes_ + side_ * notice_bytes_);
  }
  /// What belongs to the notice: body_bytes() bytes, aligned for any element.
  std::byte* body(int rank) const { return reinterpret_cast<std::byte*>(&notice(rank) + 1); }
  std::int64_t body_bytes() const {
    return notice_bytes_ - static_cast<std::int64_t>(sizeof(Notice));
  }

  /// This rank comes to the next meeting.
  void arrive();
  /// Whether all have come to it.
  bool all_came() {
    while (absent_ < ranks_ && has_come(absent_)) ++absent_;
    return absent_ == ranks_;
  }
  /// Whether `rank` has.
  bool came(int rank) const { return has_come(rank); }
  /// Sleeps until all have come, a rank has failed, or `longest` has passed; below a second.
  void sleep(std::chrono::nanoseconds longest);

  /// Says that a rank failed and why; the first one to say so is kept. Wakes who sleeps.
  void fail(std::string_view why);
  bool failed() const;
  /// What was said, once failed().
  std::string failure() const;
  /// Says that `rank` will come no more.
  void leave(int rank);
  bool left(int rank) const;

 private:
  static constexpr std::int64_t kLine = 64;

  /// A zero file is a valid one of these: nobody sleeps, nobody has failed.
  struct Head {
    alignas(kLine) std::atomic<std::uint32_t> sleepers;
    std::atomic<std::uint32_t> wakes;   // the word that they sleep on
    std::atomic<std::uint32_t> failed;  // 0: nobody, 1: words are being written, 2: they are there
    alignas(kLine) std::array<char, 1024> words;
  };

  static std::int64_t notice_bytes_for(int ranks);
  // Meetings are numbered round and round.
  bool has_come(int rank) const {
    const std::uint32_t came = notice(rank).came.load(std::memory_order_seq_cst);
    return static_cast<std::int32_t>(came - meeting_) >= 0;
  }
  void wake_all();
  std::atomic<std::uint32_t>& left_flag(int rank) const;

  int rank_;
  int ranks_;
  std::int64_t notice_bytes_;
  std::int64_t place_bytes_;  // of a rank: a line that says whether it left, and two notices
  Span span_;
  Head* head_;
  std::byte* first_place_;     // its first notice
  std::uint32_t meeting_ = 0;  // that this rank came to last
  int absent_ = 0;             // who was found absent first
  int side_ = 0;
};

}  // namespace zero::host
