// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/closed_memory.h"

#include <sys/mman.h>

#include <cstring>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/host.h"

namespace zero::testing {
namespace {

constexpr std::int64_t kRange = std::int64_t{1} << 34;  // bytes of address space

/// The key of all closed memory, which threads cannot access at first. Negative: there are none
/// here, and each Open changes the protection of all pages, which takes most of a test's time.
int memory_key() {
  static const int key = ::pkey_alloc(0, PKEY_DISABLE_ACCESS);
  return key;
}

thread_local int opened_here = 0;  // number of live Opens of this thread, with keys

}  // namespace

ClosedMemory::ClosedMemory() {
  void* const range = ::mmap(nullptr, static_cast<std::size_t>(kRange), PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ZERO_CHECK(range != MAP_FAILED, "test device: no {} bytes of addresses for closed memory",
             kRange);
  begin_ = static_cast<std::byte*>(range);
}

ClosedMemory::~ClosedMemory() { ::munmap(begin_, static_cast<std::size_t>(kRange)); }

void* ClosedMemory::take(std::int64_t bytes) {
  const std::int64_t length = round_up(bytes, page_bytes());
  if (length > kRange - used_) return nullptr;
  std::byte* const data = begin_ + used_;
  const auto size = static_cast<std::size_t>(length);
  if (::mprotect(data, size, PROT_READ | PROT_WRITE) != 0) return nullptr;
  std::memset(data, 0xff, size);
  if (memory_key() >= 0) {
    if (::pkey_mprotect(data, size, PROT_READ | PROT_WRITE, memory_key()) != 0) return nullptr;
  } else if (open_ == 0 && ::mprotect(data, size, PROT_NONE) != 0) {
    return nullptr;
  }
  used_ += length;
  taken_[data] = length;
  return data;
}

void ClosedMemory::give_back(void* data, std::int64_t bytes) noexcept {
  const auto length = static_cast<std::size_t>(round_up(bytes, page_bytes()));
  taken_.erase(static_cast<std::byte*>(data));
  ::madvise(data, length, MADV_DONTNEED);
  if (memory_key() < 0) ::mprotect(data, length, PROT_NONE);
}

/// Of memory that is taken, in calls that bridge small gaps: the range soon has a hundred times its
/// pages.
bool ClosedMemory::protect(int protection) const noexcept {
  const std::int64_t gap = 32 * page_bytes();
  bool done = true;
  for (auto first = taken_.begin(); first != taken_.end();) {
    std::byte* const begin = first->first;
    std::byte* end = begin;
    for (; first != taken_.end() && first->first - end <= gap; ++first) {
      end = first->first + first->second;
    }
    done = ::mprotect(begin, static_cast<std::size_t>(end - begin), protection) == 0 && done;
  }
  return done;
}

ClosedMemory::Open::Open(ClosedMemory* memory) : memory_(memory) {
  if (memory_ == nullptr) return;
  if (memory_key() >= 0) {
    if (opened_here++ == 0) ::pkey_set(memory_key(), 0);
  } else if (memory_->open_++ == 0) {
    ZERO_CHECK(memory_->protect(PROT_READ | PROT_WRITE), "test device: cannot open {} bytes",
               memory_->used_);
  }
}

ClosedMemory::Open::~Open() {
  if (memory_ == nullptr) return;
  if (memory_key() >= 0) {
    if (--opened_here == 0) ::pkey_set(memory_key(), PKEY_DISABLE_ACCESS);
  } else if (--memory_->open_ == 0) {
    memory_->protect(PROT_NONE);
  }
}

}  // namespace zero::testing
