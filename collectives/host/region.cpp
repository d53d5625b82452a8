// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host/region.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/page.h"

namespace zero::host {
namespace {

// Linux 6.1: populates a range with huge pages at once, regardless of the system's setting for
// shared memory. Headers of older systems lack the constant.
constexpr int kCollapse = 25;

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

}  // namespace

// Touches a page of each huge page, then asks for the whole: as fast as the first touch of a
// private huge page; single faults take three times as long. Only hints: results do not depend on
// them.
void make_huge(std::byte* data, std::int64_t bytes) {
  if (madvise(data, size(bytes), MADV_HUGEPAGE) != 0) return;
  for (std::int64_t at = 0; at < bytes; at += kHugePage) {
    *reinterpret_cast<volatile std::byte*>(data + at) = std::byte{};
  }
  madvise(data, size(bytes), kCollapse);
}

Mapping::Mapping(int descriptor, std::int64_t bytes, int protection) : bytes_(bytes) {
  const std::int64_t reserved = bytes + kHugePage;
  void* const space =
      mmap(nullptr, size(reserved), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ZERO_CHECK(space != MAP_FAILED, "no address space for {} bytes: {}", reserved,
             std::strerror(errno));
  auto* const start = static_cast<std::byte*>(space);
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(start));
  const std::int64_t before = round_up(address, kHugePage) - address;
  if (before > 0) munmap(start, size(before));
  munmap(start + before + bytes, size(kHugePage - before));
  data_ = start + before;
  if (mmap(data_, size(bytes), protection, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, descriptor, 0) ==
      MAP_FAILED) {
    const int code = errno;
    munmap(data_, size(bytes));
    fail("{} bytes cannot be mapped: {}", bytes, std::strerror(code));
  }
  madvise(data_, size(bytes), MADV_DONTDUMP);  // mostly holes, and mapped by every process
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size(bytes_));
}

Region::Region(std::int64_t capacity)
    : file_("zero", capacity),
      mapping_(file_.descriptor(), capacity, PROT_READ | PROT_WRITE),
      free_{{0, capacity}} {
  madvise(mapping_.data(), size(capacity), MADV_NOHUGEPAGE);  // except ranges that fill huge pages
}

void* Region::allocate(std::int64_t bytes) {
  if (bytes > capacity()) return nullptr;
  const bool large = bytes >= kHugePage;
  const std::scoped_lock lock(mutex_);
  const std::int64_t begin = take(round_up(bytes, page_bytes()), large ? kHugePage : page_bytes());
  if (begin < 0) return nullptr;
  std::byte* const data = mapping_.data() + begin;
  if (large) make_huge(data, bytes / kHugePage * kHugePage);
  return data;
}

void Region::free(void* data, std::int64_t bytes) noexcept {
  const std::int64_t begin = static_cast<std::byte*>(data) - mapping_.data();
  const std::int64_t length = round_up(bytes, page_bytes());
  const std::scoped_lock lock(mutex_);
  fallocate(file_.descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, length);
  madvise(data, size(length), MADV_NOHUGEPAGE);
  try {
    give_back(begin, length);
  } catch (const std::bad_alloc&) {
    return;  // loses address space, not memory
  }
}

std::int64_t Region::offset_of(const void* data, std::int64_t bytes) const {
  const std::int64_t begin = static_cast<const std::byte*>(data) - mapping_.data();
  return begin >= 0 && begin <= capacity() - bytes ? begin : -1;
}

// The first fit for large ranges, the last one for others.
std::int64_t Region::take(std::int64_t bytes, std::int64_t alignment) {
  const auto start_in = [&](const std::pair<const std::int64_t, std::int64_t>& range) {
    const auto [begin, length] = range;
    const std::int64_t last = begin + length - bytes;
    const std::int64_t start = alignment == page_bytes() ? last : round_up(begin, alignment);
    return start >= begin && start <= last ? start : -1;
  };
  const auto fits = [&](const auto& range) { return start_in(range) >= 0; };
  auto range = free_.end();
  if (alignment == page_bytes()) {
    const auto found = std::find_if(free_.rbegin(), free_.rend(), fits);
    if (found != free_.rend()) range = std::prev(found.base());
  } else {
    range = std::find_if(free_.begin(), free_.end(), fits);
  }
  if (range == free_.end()) return -1;
  const auto [begin, length] = *range;
  const std::int64_t start = start_in(*range);
  const std::int64_t after = begin + length - start - bytes;
  free_.erase(range);
  if (start > begin) free_.emplace(begin, start - begin);
  if (after > 0) free_.emplace(start + bytes, after);
  return start;
}

void Region::give_back(std::int64_t begin, std::int64_t bytes) {
  const auto next = free_.lower_bound(begin);
  const auto left = next == free_.begin() ? free_.end() : std::prev(next);
  std::int64_t end = begin + bytes;
  if (next != free_.end() && next->first == end) {
    end += next->second;
    free_.erase(next);
  }
  if (left != free_.end() && left->first + left->second == begin) {
    left->second = end - left->first;
  } else {
    free_.emplace(begin, end - begin);
  }
}

}  // namespace zero::host
