// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "collectives/host/shared_file.h"

namespace zero::host {

/// Bytes of a huge page.
inline constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

/// Address space, aligned for huge pages, with one shared file mapped into it.
class Mapping {
 public:
  /// Maps [0, bytes) of `descriptor` with `protection`. Throws zero::Error with the system's
  /// reason.
  Mapping(int descriptor, std::int64_t bytes, int protection);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// Populates a shared mapping with huge pages at once, if the kernel has any; `bytes` is a multiple
/// of kHugePage.
void make_huge(std::byte* data, std::int64_t bytes);

/// The memory of this process that its peers on the host can access: one anonymous file, sparse and
/// mapped once, from which allocations take ranges. Peers map the same file, so a range has one
/// offset for all and no mapping is ever stale: freeing a range returns its pages to the system in
/// all processes at once. Thread-safe.
class Region {
 public:
  /// Reserves `capacity` bytes of address space, no memory. Throws zero::Error with the system's
  /// reason.
  explicit Region(std::int64_t capacity);

  const SharedFile& file() const { return file_; }
  std::int64_t capacity() const { return mapping_.bytes(); }
  const std::byte* data() const { return mapping_.data(); }

  /// Allocates `bytes` > 0, page-aligned. Ranges of 2 MiB or more are aligned to huge pages and
  /// populated with them at once, if the kernel has any; they come from the start of the region and
  /// smaller ones from its end, so that peers can tell them apart. Null if there is no room.
  void* allocate(std::int64_t bytes);
  /// Frees a range of allocate(bytes).
  void free(void* data, std::int64_t bytes) noexcept;
  /// The offset of `data` in the file if all `bytes` lie in it; else -1.
  std::int64_t offset_of(const void* data, std::int64_t bytes) const;

 private:
  std::int64_t take(std::int64_t bytes, std::int64_t alignment);
  void give_back(std::int64_t begin, std::int64_t bytes);

  SharedFile file_;
  Mapping mapping_;
  std::mutex mutex_;
  std::map<std::int64_t, std::int64_t> free_;  // offset -> bytes, never adjacent
};

}  // namespace zero::host
