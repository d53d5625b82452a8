// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace zero::host {

/// A barrier of ranks in shared memory, round after round, in which a rank that waits also learns
/// that another one has failed. `Words` gives access to its words, which begin as zeros, as
/// std::atomic of 32 bits or a type that acts like one:
///
///   arrivals(rank)  number of the last round that the rank arrived at; wraps around
///   sleepers()      number of ranks that sleep or are about to
///   wakes()         the word that they sleep on; it counts wake-ups
///   failed()        0: no rank, 1: a rank is writing why, 2: the reason is there
///
/// and wait(word, value, longest) and wake_all(word), as in futex(2). tests/collectives tries every
/// order in which two or three ranks may see each other's writes; with any weaker memory order
/// below, a rank could sleep on or read values not yet written.
template <typename Words>
class Barrier {
 public:
  Barrier(Words words, int rank, int ranks) : words_(words), rank_(rank), ranks_(ranks) {}

  Words& words() { return words_; }
  const Words& words() const { return words_; }

  // A sleeper first counts itself, then looks which ranks have arrived; an arriving rank first
  // publishes its arrival, then looks for sleepers, and the last of several sees that all have
  // arrived. All these accesses are in one total order (sequentially consistent), so no rank is
  // left asleep.
  void arrive() {
    ++round_;
    absent_ = 0;
    words_.arrivals(rank_).store(round_, std::memory_order_seq_cst);
    if (words_.sleepers().load(std::memory_order_seq_cst) > 0 && all_arrived()) wake_all();
  }

  bool has_arrived(int rank) const {
    const std::uint32_t arrived = words_.arrivals(rank).load(std::memory_order_seq_cst);
    return static_cast<std::int32_t>(arrived - round_) >= 0;
  }

  bool all_arrived() {
    while (absent_ < ranks_ && has_arrived(absent_)) ++absent_;
    return absent_ == ranks_;
  }

  // A rank that loads `wakes` after a wake-up sees the event that woke it.
  void sleep(std::chrono::nanoseconds longest) {
    words_.sleepers().fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t wakes = words_.wakes().load(std::memory_order_acquire);
    if (!failed() && !all_arrived()) words_.wait(words_.wakes(), wakes, longest);
    words_.sleepers().fetch_sub(1, std::memory_order_relaxed);
  }

  /// The first rank to fail calls write(), which stores the reason, and wakes all.
  template <typename Write>
  void fail(Write write) {
    std::uint32_t nobody = 0;
    if (!words_.failed().compare_exchange_strong(nobody, 1, std::memory_order_relaxed)) return;
    write();
    words_.failed().store(2, std::memory_order_release);
    wake_all();
  }

  bool failed() const { return words_.failed().load(std::memory_order_acquire) == 2; }

 private:
  void wake_all() {
    words_.wakes().fetch_add(1, std::memory_order_release);
    words_.wake_all(words_.wakes());
  }

  Words words_;
  int rank_;
  int ranks_;
  std::uint32_t round_ = 0;  // the last one that this rank arrived at
  int absent_ = 0;           // the first rank found absent
};

}  // namespace zero::host
