// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace zero::testing {

/// Memory of a device that host code cannot see: one range of addresses that faults when touched,
/// but while an Open lives. Addresses are never given twice; pages go back at once. Used by one
/// thread; others may read what is open, as ranks do in a meeting.
class ClosedMemory {
 public:
  ClosedMemory();
  ~ClosedMemory();
  ClosedMemory(const ClosedMemory&) = delete;
  ClosedMemory& operator=(const ClosedMemory&) = delete;

  /// Aligned to pages; null when the range is used up.
  void* take(std::int64_t bytes);
  void give_back(void* data, std::int64_t bytes) noexcept;

  /// Opens the memory for its own life; of a null memory, nothing.
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
  int open_ = 0;  // how many
};

}  // namespace zero::testing
