// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host/board.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>

#include "base/checked_math.h"

namespace zero::host {
namespace {

constexpr std::int64_t kPerRank = 24;  // bytes of a table's entry per rank, in a notice's body

// Other processes wait on the same word, so none of this is private to one.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value,
                std::chrono::nanoseconds longest) {
  const timespec time{0, longest.count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

std::int64_t Board::notice_bytes_for(int ranks) {
  return round_up(static_cast<std::int64_t>(sizeof(Notice)) + kPosted + kPerRank * ranks, kLine);
}

std::int64_t Board::bytes_for(int ranks) {
  const std::int64_t place = kLine + 2 * notice_bytes_for(ranks);
  return round_up(static_cast<std::int64_t>(sizeof(Head)) + ranks * place, kPage);
}

Board::Board(int descriptor, int rank, int ranks)
    : rank_(rank),
      ranks_(ranks),
      notice_bytes_(notice_bytes_for(ranks)),
      place_bytes_(kLine + 2 * notice_bytes_),
      span_(descriptor, bytes_for(ranks), PROT_READ | PROT_WRITE),
      head_(reinterpret_cast<Head*>(span_.data())),
      first_place_(span_.data() + sizeof(Head) + kLine) {}

std::atomic<std::uint32_t>& Board::left_flag(int rank) const {
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(first_place_ + rank * place_bytes_ - kLine);
}

// Who sleeps is counted, then looks who has come; who comes says so, then looks whether anybody
// sleeps, and the last of several sees that all have come: all these are in one total order
// (sequentially consistent), so nobody is left asleep.
void Board::arrive() {
  ++meeting_;
  absent_ = 0;
  notice(rank_).came.store(meeting_, std::memory_order_seq_cst);
  if (head_->sleepers.load(std::memory_order_seq_cst) > 0 && all_came()) wake_all();
}

void Board::sleep(std::chrono::nanoseconds longest) {
  head_->sleepers.fetch_add(1, std::memory_order_seq_cst);
  const std::uint32_t wakes = head_->wakes.load(std::memory_order_seq_cst);
  if (!failed() && !all_came()) futex_wait(head_->wakes, wakes, longest);
  head_->sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void Board::wake_all() {
  head_->wakes.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(head_->wakes);
}

void Board::fail(std::string_view why) {
  Head& shared = *head_;
  std::uint32_t nobody = 0;
  if (!shared.failed.compare_exchange_strong(nobody, 1)) return;
  const std::size_t length = std::min(why.size(), shared.words.size() - 1);
  std::memcpy(shared.words.data(), why.data(), length);
  shared.failed.store(2, std::memory_order_release);
  wake_all();
}

bool Board::failed() const { return head_->failed.load(std::memory_order_acquire) == 2; }

std::string Board::failure() const { return head_->words.data(); }

void Board::leave(int rank) { left_flag(rank).store(1, std::memory_order_release); }

bool Board::left(int rank) const { return left_flag(rank).load(std::memory_order_acquire) != 0; }

}  // namespace zero::host
