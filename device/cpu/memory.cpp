// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <limits>

#include "base/checked_math.h"
#include "base/host.h"

namespace zero::cpu {
namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kHugePage = 2 << 20;

void* map_pages(std::int64_t bytes) {
  if (bytes > std::numeric_limits<std::int64_t>::max() - 2 * kHugePage) return nullptr;
  const std::int64_t length = round_up(bytes, page_bytes());
  const std::int64_t reserved = length + kHugePage;
  void* mapped = mmap(nullptr, static_cast<std::size_t>(reserved), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const start = static_cast<std::byte*>(mapped);
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(start));
  const std::int64_t before = round_up(address, kHugePage) - address;
  const std::int64_t after = reserved - before - length;
  if (before > 0) munmap(start, static_cast<std::size_t>(before));
  if (after > 0) munmap(start + before + length, static_cast<std::size_t>(after));
  madvise(start + before, static_cast<std::size_t>(length), MADV_HUGEPAGE);  // a hint: may fail
  return start + before;
}

}  // namespace

void* allocate_memory(std::int64_t bytes) {
  if (bytes >= kHugePage) return map_pages(bytes);
  void* data = nullptr;
  return posix_memalign(&data, kAlignment, static_cast<std::size_t>(bytes)) == 0 ? data : nullptr;
}

void free_memory(void* data, std::int64_t bytes) noexcept {
  if (bytes >= kHugePage) {
    munmap(data, static_cast<std::size_t>(round_up(bytes, page_bytes())));
  } else {
    std::free(data);
  }
}

std::int64_t taken_by(std::int64_t bytes) {
  return round_up(bytes, bytes >= kHugePage ? page_bytes() : kAlignment);
}

}  // namespace zero::cpu
