// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
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
};

/// The head of a rank's notice: what its peers must know before they read its values.
struct Notice {
  std::uint64_t agreement = 0;  ///< equal on all ranks that make the same call
  Reach reach = Reach::posted;
  std::int64_t offset = 0;  ///< direct: of the values in the rank's region
};

/// The memory that all ranks of one host write: a place to meet, and a place per rank for two
/// notices, this call's and the last one's, which slower peers may still read. An anonymous file
/// that every rank has mapped.
class Board {
 public:
  /// Bytes of values that a notice has room for.
  static constexpr std::int64_t kPosted = std::int64_t{8} << 10;

  /// Maps the board of `ranks` ranks in the file behind `descriptor`, of bytes_for(ranks) bytes and
  /// zero at first.
  Board(int descriptor, int ranks);
  static std::int64_t bytes_for(int ranks);

  int ranks() const { return ranks_; }
  /// Turns to the next call's notices. Every rank does this as often.
  void turn() { side_ = 1 - side_; }
  /// A rank's notice of this call: written by its rank before a meeting, read by all after it.
  Notice& notice(int rank) const;
  /// What belongs to the notice: body_bytes() bytes on a line's boundary.
  std::byte* body(int rank) const;
  std::int64_t body_bytes() const;

  /// Counts the caller in. True for the last one, for whom nobody is left to wait.
  bool arrive();
  /// Whether all have come since this rank's arrive().
  bool all_came() const;
  /// Sleeps until all have come, a rank has failed, or a quarter of a second has passed.
  void sleep() const;

  /// Says that a rank failed and why; the first one to say so is kept. Wakes who sleeps.
  void fail(std::string_view why);
  bool failed() const;
  /// What was said, once failed().
  std::string failure() const;
  /// Says that `rank` will come no more.
  void leave(int rank);
  bool left(int rank) const;

 private:
  struct Head;
  struct Place;

  Head& head() const;
  Place& place(int rank) const;

  int ranks_;
  std::int64_t place_bytes_;
  Span span_;
  std::uint32_t phase_ = 0;  // of this rank's last arrival
  int side_ = 0;
};

}  // namespace zero::host
