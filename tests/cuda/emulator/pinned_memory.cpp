// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulator/pinned_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace zero::cuda::emulated {
namespace {

constexpr std::size_t kSpace = std::size_t{1} << 36;  // addresses, not memory
constexpr std::size_t kPage = 4096;

std::size_t pages_of(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

PinnedMemory::PinnedMemory() {
  void* const space =
      mmap(nullptr, kSpace, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) throw std::bad_alloc();
  base_ = next_ = static_cast<std::byte*>(space);
}

PinnedMemory::~PinnedMemory() { munmap(base_, kSpace); }

void* PinnedMemory::allocate(std::size_t bytes) {
  const std::size_t pages = pages_of(bytes);
  if (next_ + pages + kPage > base_ + kSpace) return nullptr;
  std::byte* const data = next_;
  mprotect(data, pages, PROT_READ | PROT_WRITE);
  std::memset(data, 0xff, pages);
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(data + bytes, pages - bytes);
#endif
  next_ += pages + kPage;
  sizes_.emplace(data, bytes);
  return data;
}

std::size_t PinnedMemory::release(void* data) {
  const auto found = sizes_.find(data);
  if (found == sizes_.end()) return 0;
  const std::size_t bytes = found->second;
  mprotect(data, pages_of(bytes), PROT_NONE);
  madvise(data, pages_of(bytes), MADV_DONTNEED);
  sizes_.erase(found);
  return bytes;
}

ByteRange PinnedMemory::addresses() const { return range_of(base_, kSpace); }

}  // namespace zero::cuda::emulated
