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
#include "base/page.h"

namespace zero::host {
namespace {

constexpr std::int64_t kPerRank = sizeof(Entry);      // of a notice's table
static_assert(sizeof(Destination) <= sizeof(Entry));  // lies behind the values, in the table's room

}  // namespace

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

std::int64_t Board::notice_bytes_for(int ranks) {
  return round_up(static_cast<std::int64_t>(sizeof(Notice)) + kPosted + kPerRank * ranks, kLine);
}

std::int64_t Board::bytes_for(int ranks) {
  const std::int64_t place = kLine + 2 * notice_bytes_for(ranks);
  return round_up(static_cast<std::int64_t>(sizeof(Head)) + ranks * place, page_bytes());
}

Board::Board(int descriptor, int rank, int ranks)
    : span_(descriptor, bytes_for(ranks), PROT_READ | PROT_WRITE),
      meeting_(words_for(ranks), rank, ranks) {}

Board::Words Board::words_for(int ranks) const {
  const std::int64_t notice = notice_bytes_for(ranks);
  return {.head = reinterpret_cast<Head*>(span_.data()),
          .first_place = span_.data() + sizeof(Head) + kLine,
          .place_bytes = kLine + 2 * notice,
          .notice_bytes = notice};
}

// Other processes wait on the same word, so none of this is private to one.
void Board::Words::wait(std::atomic<std::uint32_t>& word, std::uint32_t value,
                        std::chrono::nanoseconds longest) {
  const timespec time{0, longest.count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void Board::Words::wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::atomic<std::uint32_t>& Board::left_flag(int rank) const {
  const Words& words = meeting_.words();
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(words.first_place +
                                                        rank * words.place_bytes - kLine);
}

void Board::fail(std::string_view why) {
  meeting_.fail([&] {
    auto& words = head().words;
    std::memcpy(words.data(), why.data(), std::min(why.size(), words.size() - 1));
  });
}

std::string Board::failure() const { return text_in(head().words); }

void Board::leave(int rank) { left_flag(rank).store(1, std::memory_order_release); }

bool Board::left(int rank) const { return left_flag(rank).load(std::memory_order_acquire) != 0; }

}  // namespace zero::host
