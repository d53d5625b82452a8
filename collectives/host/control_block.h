// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/host/barrier.h"
#include "collectives/host/memory.h"

namespace zero::host {

/// The cores that this process may use, as text for its peers.
std::string usable_cores();

/// How long a waiting rank spins and yields before it sleeps. If each rank can have a core of its
/// own, a wake-up would cost more than most waits, so the rank spins, for longer than the shortest
/// time slice of the kernel: ranks that fell out of step fall into step again. The rank then yields
/// for a while, because the kernel spreads runnable ranks over the cores but draws ranks that wake
/// each other to one core. If ranks outnumber cores, a waiting rank leaves its core to the ranks
/// that it waits for.
class SpinPolicy {
 public:
  /// `cores`: usable_cores() of every rank.
  explicit SpinPolicy(const std::vector<std::string>& cores);

  /// Spins and yields until `done()`; false if it is time to sleep first. Calls `idle()` while
  /// yielding.
  template <typename Done, typename Idle>
  bool outlasts(Done done, Idle idle) const {
    if (!own_core_) return yields(done, idle, Nanoseconds{0});
    return spins(done) || yields(done, idle, kYielding);
  }

 private:
  using Nanoseconds = std::chrono::nanoseconds;
  static constexpr Nanoseconds kSpinning{150'000};
  static constexpr Nanoseconds kYielding{1'000'000};
  static constexpr int kFirstLooks = 100;  // without a pause
  static constexpr int kLooksPerClock = 16;

  template <typename Done>
  static bool spins(Done done) {
    for (int i = 0; i < kFirstLooks; ++i) {
      if (done()) return true;
    }
    const auto end = std::chrono::steady_clock::now() + kSpinning;
    do {
      for (int i = 0; i < kLooksPerClock; ++i) {
        if (done()) return true;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
      }
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }

  template <typename Done, typename Idle>
  static bool yields(Done done, Idle idle, Nanoseconds longest) {
    const auto end = std::chrono::steady_clock::now() + longest;
    do {
      idle();
      sched_yield();
      if (done()) return true;
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }

  bool own_core_;
};

// What a rank writes about a call for its peers, in memory that all ranks of the host map. The
// ranks trust it: each of them may write the memory of every other one anyway.

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

/// The memory through which the ranks of a host agree on each call: a barrier, and a slot per rank
/// with two headers: that of this call, and that of the last one, which slower peers may still
/// read. An anonymous file that every rank has mapped. A rank's arrivals share a cache line with
/// the rest of its header, so that a peer that waits for the rank already has the words it reads
/// next.
class ControlBlock {
 public:
  /// The most bytes of values that travel behind a header.
  static constexpr std::int64_t kInlineBytes = std::int64_t{8} << 10;

  /// Maps the file behind `descriptor`, which has bytes_for(ranks) bytes and began as zeros, for
  /// rank `rank` of `ranks`.
  ControlBlock(int descriptor, int rank, int ranks);
  static std::int64_t bytes_for(int ranks);

  /// Switches to the headers of the next call. Every rank must call it equally often.
  void next_call() { barrier_.words().side = 1 - barrier_.words().side; }
  /// A rank's header of this call: written by that rank before it arrives, read by all once all
  /// have arrived; unchanged until all have arrived at the barrier of the next call.
  CallHeader& header(int rank) const { return barrier_.words().header(rank); }
  /// The bytes behind the header: body_bytes(), aligned for any element.
  std::byte* body(int rank) const { return reinterpret_cast<std::byte*>(&header(rank) + 1); }
  std::int64_t body_bytes() const {
    return barrier_.words().header_bytes - static_cast<std::int64_t>(sizeof(CallHeader));
  }

  /// This rank arrives at the next round of the barrier.
  void arrive() { barrier_.arrive(); }
  /// Whether all ranks have arrived at it.
  bool all_arrived() { return barrier_.all_arrived(); }
  bool has_arrived(int rank) const { return barrier_.has_arrived(rank); }
  /// Sleeps until all have arrived, a rank has failed, or `longest` (below a second) has passed.
  void sleep(std::chrono::nanoseconds longest) { barrier_.sleep(longest); }

  /// Records that a rank failed, and why; the first failure is kept. Wakes sleeping ranks.
  void fail(std::string_view why);
  bool failed() const { return barrier_.failed(); }
  /// The `why` of the first failure, once failed().
  std::string failure() const;
  /// Records that `rank` arrives at no later round.
  void leave(int rank);
  bool left(int rank) const;

 private:
  static constexpr std::int64_t kLine = 64;

  /// All zeros are a valid Head: no rank sleeps, none has failed. The three words are the
  /// barrier's.
  struct Head {
    alignas(kLine) std::atomic<std::uint32_t> sleepers;
    std::atomic<std::uint32_t> wakes;
    std::atomic<std::uint32_t> failed;
    alignas(kLine) std::array<char, 1024> reason;
  };

  /// The words of the barrier, in the mapped file.
  struct Words {
    Head* head;
    std::byte* first_slot;    // the first rank's first header
    std::int64_t slot_bytes;  // of a rank: a line for "has left", and two headers with their bodies
    std::int64_t header_bytes;
    int side = 0;

    CallHeader& header(int rank) const {
      return *reinterpret_cast<CallHeader*>(first_slot + rank * slot_bytes + side * header_bytes);
    }
    std::atomic<std::uint32_t>& arrivals(int rank) const { return header(rank).arrivals; }
    std::atomic<std::uint32_t>& sleepers() const { return head->sleepers; }
    std::atomic<std::uint32_t>& wakes() const { return head->wakes; }
    std::atomic<std::uint32_t>& failed() const { return head->failed; }
    static void wait(std::atomic<std::uint32_t>& word, std::uint32_t value,
                     std::chrono::nanoseconds longest);
    static void wake_all(std::atomic<std::uint32_t>& word);
  };

  static std::int64_t header_bytes_for(int ranks);
  Words words_for(int ranks) const;
  Head& head() const { return *barrier_.words().head; }
  std::atomic<std::uint32_t>& left_flag(int rank) const;

  Mapping mapping_;
  Barrier<Words> barrier_;
};

}  // namespace zero::host
