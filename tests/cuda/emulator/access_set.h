// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace zero::cuda::emulated {

/// Addresses [begin, end).
struct ByteRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool holds(std::uintptr_t at) const { return at - begin < end - begin; }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

inline ByteRange range_of(const void* data, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  return {begin, begin + bytes};
}

enum class Access : std::uint8_t { read, write };

/// Which bytes some piece of work read and which it wrote.
class AccessSet {
 public:
  void add(ByteRange bytes, Access access);
  bool empty() const { return pages_.empty(); }
  void clear();
  /// Ascending, as few ranges as there can be.
  std::vector<ByteRange> ranges(Access access) const;

 private:
  static constexpr std::uintptr_t kPage = 4096;
  using Marks = std::array<std::uint64_t, kPage / 64>;
  using Page = std::array<Marks, 2>;
  struct Known {
    std::uintptr_t number = 0;
    Page* page = nullptr;
  };

  Page& page(std::uintptr_t number);

  std::map<std::uintptr_t, Page> pages_;
  std::array<Known, 16> known_{};  // pages that were looked up before
};

}  // namespace zero::cuda::emulated
