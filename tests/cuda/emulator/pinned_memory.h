// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "tests/cuda/emulator/access_set.h"

namespace zero::cuda::emulated {

/// The memory behind cudaMallocHost: the host's, in a range of addresses of its own, none of them
/// used twice. Whoever touches it after its release ends with a segmentation fault. Calls are the
/// caller's to serialise.
class PinnedMemory {
 public:
  PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory();

  /// Whole pages, filled with 0xff; null when the address space is used up.
  void* allocate(std::size_t bytes);
  /// How many bytes `data` had; 0 when it is no allocation.
  std::size_t release(void* data);
  std::size_t allocations() const { return sizes_.size(); }
  ByteRange addresses() const;

 private:
  std::byte* base_;
  std::byte* next_;
  std::map<void*, std::size_t> sizes_;
};

}  // namespace zero::cuda::emulated
