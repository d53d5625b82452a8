// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "collectives/host/shared_file.h"

namespace zero::host {

/// Pages that the kernel maps with one entry where it can.
inline constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

/// Address space for one shared file, aligned for huge pages; what lies in it is mapped over it.
class Span {
 public:
  /// Maps [0, bytes) of `descriptor` with `protection`. Throws zero::Error with the system's
  /// reason.
  Span(int descriptor, std::int64_t bytes, int protection);
  Span(Span&& other) noexcept;
  Span& operator=(Span&&) = delete;
  ~Span();

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// Makes whole huge pages of a shared mapping now, where the kernel has any; `bytes` are a multiple
/// of theirs.
void make_huge(std::byte* data, std::int64_t bytes);

/// The memory of this process that its peers on the host can reach: one anonymous file, sparse and
/// mapped once, from which allocations take ranges. Peers map the same file, so a range has one
/// offset for all and no mapping is ever stale: freeing a range gives its pages back in all
/// processes at once. Thread-safe.
class Region {
 public:
  /// Room for `capacity` bytes, of address space only. Throws zero::Error with the system's reason.
  explicit Region(std::int64_t capacity);

  const SharedFile& file() const { return file_; }
  std::int64_t capacity() const { return span_.bytes(); }
  const std::byte* data() const { return span_.data(); }

  /// `bytes` > 0, from a page's boundary, from 2 MiB on from a huge page's: whole huge pages of it
  /// are made at once, where the kernel has any. Those lie towards the start, smaller ones towards
  /// the end, so that peers know one from the other. Null when there is no room.
  void* allocate(std::int64_t bytes);
  /// Frees what allocate(bytes) gave.
  void free(void* data, std::int64_t bytes) noexcept;
  /// Where `data` lies in the file when all `bytes` do; -1 otherwise.
  std::int64_t offset_of(const void* data, std::int64_t bytes) const;

 private:
  std::int64_t take(std::int64_t bytes, std::int64_t alignment);
  void give_back(std::int64_t begin, std::int64_t bytes);

  SharedFile file_;
  Span span_;
  std::mutex mutex_;
  std::map<std::int64_t, std::int64_t> free_;  // offset -> bytes, never adjacent
};

}  // namespace zero::host
