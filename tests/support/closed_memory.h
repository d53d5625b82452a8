// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace zero::testing {

/// Device memory that host code cannot access: one address range that faults on access except while
/// an Open lives. Addresses are never reused; freed pages are returned immediately. Used by one
/// thread; others may read open memory, as ranks do in a meeting, where they have an Open too:
/// where the processor has keys of memory, an Open concerns one thread, and all closed memory.
class ClosedMemory {
 public:
  ClosedMemory();
  ~ClosedMemory();
  ClosedMemory(const ClosedMemory&) = delete;
  ClosedMemory& operator=(const ClosedMemory&) = delete;

  /// Aligned to pages, with all bits set; null if the range is exhausted.
  void* take(std::int64_t bytes);
  void give_back(void* data, std::int64_t bytes) noexcept;

  /// Opens the memory during its own lifetime, on one thread; null: no effect.
  class Open {
   public:
    explicit Open(ClosedMemory* memory);
    ~Open();
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    ClosedMemory* memory_;
  };

 private:
  bool protect(int protection) const noexcept;

  std::byte* begin_ = nullptr;
  std::int64_t used_ = 0;
  std::map<std::byte*, std::int64_t> taken_;  // bytes, whole pages
  int open_ = 0;                              // number of live Opens, without keys
};

}  // namespace zero::testing
