// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>

#include "tests/cuda/emulator/access_set.h"

namespace zero::cuda::emulated {

/// The memory behind cudaMalloc. Host code that touches it ends with a segmentation fault: it is
/// open only between open() and close(). Each allocation ends at a page that is never open, and
/// addresses are not used twice. Calls of allocate, release and holds are the caller's to
/// serialise.
class DeviceMemory {
 public:
  DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();

  /// Aligned to 256 bytes and no more, filled with 0xff; null when the address space is used up.
  void* allocate(std::size_t bytes);
  /// False when `data` is no allocation.
  bool release(void* data);
  std::size_t allocated() const { return allocated_; }
  /// Whether [data, data + bytes) lies inside one allocation.
  bool holds(const void* data, std::size_t bytes) const;
  /// Where allocations come from.
  ByteRange addresses() const;

  /// Lets the calling thread touch device memory until it calls close(). Do not nest. Where the CPU
  /// has no protection keys, closing takes a system call for each allocation: after the first calls
  /// only every eighth closes, which still finds host code that touches device memory repeatedly.
  void open();
  void close();

 private:
  bool closes_now();
  void protect_all(int protection);

  std::byte* base_;
  std::byte* next_;
  std::size_t allocated_ = 0;
  std::map<std::byte*, std::size_t> sizes_;
  int key_;  // of memory protection, per thread; -1 where the CPU has none
  // Where there is no key:
  int opened_ = 0;  // threads that have it open
  int closings_ = 0;
  bool closed_ = true;
};

}  // namespace zero::cuda::emulated
