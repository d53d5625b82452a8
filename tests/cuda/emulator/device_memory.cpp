// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulator/device_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace zero::cuda::emulated {
namespace {

constexpr std::size_t kSpace = std::size_t{1} << 38;  // addresses, not memory
constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 256;
constexpr int kAlwaysClosed = 64;  // calls of close()
constexpr int kClosedEvery = 8;

/// What an allocation takes: whole pages, and one that stays closed.
std::size_t pages_of(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

DeviceMemory::DeviceMemory() : key_(pkey_alloc(0, PKEY_DISABLE_ACCESS)) {
  void* const space =
      mmap(nullptr, kSpace, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) throw std::bad_alloc();
  base_ = next_ = static_cast<std::byte*>(space);
}

DeviceMemory::~DeviceMemory() {
  munmap(base_, kSpace);
  if (key_ >= 0) pkey_free(key_);
}

void* DeviceMemory::allocate(std::size_t bytes) {
  const std::size_t pages = pages_of(bytes);
  if (next_ + pages + kPage > base_ + kSpace) return nullptr;
  // As near to the closed page as the alignment allows, so that most overruns meet it.
  const std::size_t taken = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::byte* const data = next_ + (pages - taken);
  mprotect(next_, pages, PROT_READ | PROT_WRITE);
  std::memset(next_, 0xff, pages);
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(next_, pages + kPage);
  __asan_unpoison_memory_region(data, bytes);
#endif
  if (key_ >= 0) {
    pkey_mprotect(next_, pages, PROT_READ | PROT_WRITE, key_);
  } else if (closed_) {
    mprotect(next_, pages, PROT_NONE);
  }
  next_ += pages + kPage;
  sizes_.emplace(data, bytes);
  allocated_ += bytes;
  return data;
}

bool DeviceMemory::release(void* data) {
  const auto found = sizes_.find(static_cast<std::byte*>(data));
  if (found == sizes_.end()) return false;
  const std::size_t pages = pages_of(found->second);
  auto* const first =
      reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(data) / kPage * kPage);
  mprotect(first, pages, PROT_NONE);
  madvise(first, pages, MADV_DONTNEED);
  allocated_ -= found->second;
  sizes_.erase(found);
  return true;
}

bool DeviceMemory::holds(const void* data, std::size_t bytes) const {
  const auto* const at = static_cast<const std::byte*>(data);
  auto next = sizes_.upper_bound(const_cast<std::byte*>(at));
  if (next == sizes_.begin()) return false;
  --next;
  return at + bytes <= next->first + next->second;
}

ByteRange DeviceMemory::addresses() const { return range_of(base_, kSpace); }

void DeviceMemory::open() {
  if (key_ >= 0) {
    pkey_set(key_, 0);
  } else if (opened_++ == 0 && closed_) {
    protect_all(PROT_READ | PROT_WRITE);
    closed_ = false;
  }
}

void DeviceMemory::close() {
  if (key_ >= 0) {
    pkey_set(key_, PKEY_DISABLE_ACCESS);
  } else if (--opened_ == 0 && closes_now()) {
    protect_all(PROT_NONE);
    closed_ = true;
  }
}

bool DeviceMemory::closes_now() {
  return ++closings_ <= kAlwaysClosed || closings_ % kClosedEvery == 0;
}

void DeviceMemory::protect_all(int protection) {
  for (const auto& [data, bytes] : sizes_) {
    auto* const first =
        reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(data) / kPage * kPage);
    mprotect(first, pages_of(bytes), protection);
  }
}

}  // namespace zero::cuda::emulated
