// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host/control_block.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>

#include "base/checked_math.h"
#include "base/host.h"

namespace zero::host {
namespace {

constexpr std::int64_t kPerRank = sizeof(TableEntry);
static_assert(sizeof(Destination) <=
              sizeof(TableEntry));  // lies behind the values, as a table does

}  // namespace

std::string usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  std::string text(CPU_SETSIZE, '0');
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return text;
  for (std::size_t core = 0; core < text.size(); ++core) {
    if (CPU_ISSET(core, &cores)) text[core] = '1';
  }
  return text;
}

SpinPolicy::SpinPolicy(const std::vector<std::string>& cores) {
  std::string all(CPU_SETSIZE, '0');
  for (const std::string& one : cores) {
    for (std::size_t core = 0; core < std::min(one.size(), all.size()); ++core) {
      if (one[core] == '1') all[core] = '1';
    }
  }
  own_core_ = std::ranges::count(all, '1') >= static_cast<std::ptrdiff_t>(cores.size());
}

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

std::int64_t ControlBlock::header_bytes_for(int ranks) {
  return round_up(static_cast<std::int64_t>(sizeof(CallHeader)) + kInlineBytes + kPerRank * ranks,
                  kLine);
}

std::int64_t ControlBlock::bytes_for(int ranks) {
  const std::int64_t slot = kLine + 2 * header_bytes_for(ranks);
  return round_up(static_cast<std::int64_t>(sizeof(Head)) + ranks * slot, page_bytes());
}

ControlBlock::ControlBlock(int descriptor, int rank, int ranks)
    : mapping_(descriptor, bytes_for(ranks), PROT_READ | PROT_WRITE),
      barrier_(words_for(ranks), rank, ranks) {}

ControlBlock::Words ControlBlock::words_for(int ranks) const {
  const std::int64_t header = header_bytes_for(ranks);
  return {.head = reinterpret_cast<Head*>(mapping_.data()),
          .first_slot = mapping_.data() + sizeof(Head) + kLine,
          .slot_bytes = kLine + 2 * header,
          .header_bytes = header};
}

// Other processes wait on the same word, so none of this is private to one.
void ControlBlock::Words::wait(std::atomic<std::uint32_t>& word, std::uint32_t value,
                               std::chrono::nanoseconds longest) {
  const timespec time{0, longest.count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void ControlBlock::Words::wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::atomic<std::uint32_t>& ControlBlock::left_flag(int rank) const {
  const Words& words = barrier_.words();
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(words.first_slot + rank * words.slot_bytes -
                                                        kLine);
}

void ControlBlock::fail(std::string_view why) {
  barrier_.fail([&] {
    auto& reason = head().reason;  // of zeros at first, so it ends with one
    std::memcpy(reason.data(), why.data(), std::min(why.size(), reason.size() - 1));
  });
}

std::string ControlBlock::failure() const { return head().reason.data(); }

void ControlBlock::leave(int rank) { left_flag(rank).store(1, std::memory_order_release); }

bool ControlBlock::left(int rank) const {
  return left_flag(rank).load(std::memory_order_acquire) != 0;
}

}  // namespace zero::host
