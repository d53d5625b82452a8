// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host/board.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <ctime>

#include "base/checked_math.h"

namespace zero::host {
namespace {

constexpr std::int64_t kLine = 64;
constexpr std::int64_t kPerRank = 24;  // bytes of a table's entry per rank, in a notice's body
constexpr long kSleepNanoseconds = 250'000'000;

// Other processes wait on the same word, so none of this is private to one.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  const timespec longest{0, kSleepNanoseconds};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &longest, nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// A zero file is a valid one of these: no rank has come, phase 0, nobody has failed.
struct Board::Head {
  alignas(kLine) std::atomic<std::uint32_t> arrived;
  alignas(kLine) std::atomic<std::uint32_t> phase;  // meetings that all have come to
  std::atomic<std::uint32_t> sleepers;
  std::atomic<std::uint32_t> failed;  // 0: nobody, 1: words are being written, 2: they are there
  std::array<char, 1024> words;
};

struct Board::Place {
  alignas(kLine) std::atomic<std::uint32_t> left;
};

namespace {

constexpr std::int64_t kNoticeHead = kLine;
static_assert(sizeof(Notice) <= kNoticeHead);

std::int64_t body_for(int ranks) { return Board::kPosted + round_up(kPerRank * ranks, kLine); }
std::int64_t place_for(int ranks) { return kLine + 2 * (kNoticeHead + body_for(ranks)); }

}  // namespace

std::int64_t Board::bytes_for(int ranks) {
  return round_up(static_cast<std::int64_t>(sizeof(Head)) + ranks * place_for(ranks), kPage);
}

Board::Board(int descriptor, int ranks)
    : ranks_(ranks),
      place_bytes_(place_for(ranks)),
      span_(descriptor, bytes_for(ranks), PROT_READ | PROT_WRITE) {}

Board::Head& Board::head() const { return *reinterpret_cast<Head*>(span_.data()); }

Board::Place& Board::place(int rank) const {
  return *reinterpret_cast<Place*>(span_.data() + sizeof(Head) + rank * place_bytes_);
}

Notice& Board::notice(int rank) const {
  auto* const first = reinterpret_cast<std::byte*>(&place(rank)) + sizeof(Place);
  return *reinterpret_cast<Notice*>(first + side_ * (kNoticeHead + body_bytes()));
}

std::byte* Board::body(int rank) const {
  return reinterpret_cast<std::byte*>(&notice(rank)) + kNoticeHead;
}

std::int64_t Board::body_bytes() const { return body_for(ranks_); }

bool Board::arrive() {
  Head& shared = head();
  phase_ = shared.phase.load(std::memory_order_relaxed);  // cannot change before this arrival
  if (static_cast<int>(shared.arrived.fetch_add(1, std::memory_order_acq_rel)) + 1 < ranks_) {
    return false;
  }
  shared.arrived.store(0, std::memory_order_relaxed);
  shared.phase.store(phase_ + 1, std::memory_order_seq_cst);
  if (shared.sleepers.load(std::memory_order_seq_cst) > 0) futex_wake_all(shared.phase);
  return true;
}

bool Board::all_came() const { return head().phase.load(std::memory_order_acquire) != phase_; }

// Who sleeps is counted before the kernel compares the word, and the last to arrive changes the
// word before it looks at the count: one of them sees the other.
void Board::sleep() const {
  Head& shared = head();
  shared.sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (!failed()) futex_wait(shared.phase, phase_);
  shared.sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void Board::fail(std::string_view why) {
  Head& shared = head();
  std::uint32_t nobody = 0;
  if (!shared.failed.compare_exchange_strong(nobody, 1)) return;
  const std::size_t length = std::min(why.size(), shared.words.size() - 1);
  std::memcpy(shared.words.data(), why.data(), length);
  shared.failed.store(2, std::memory_order_release);
  futex_wake_all(shared.phase);
}

bool Board::failed() const { return head().failed.load(std::memory_order_acquire) == 2; }

std::string Board::failure() const { return head().words.data(); }

void Board::leave(int rank) { place(rank).left.store(1, std::memory_order_release); }

bool Board::left(int rank) const { return place(rank).left.load(std::memory_order_acquire) != 0; }

}  // namespace zero::host
