// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

#include "device/cuda/arena.h"
#include "device/memory_ledger.h"

namespace zero::cuda {

/// A device's arenas, one for each class of memory.
class Arenas {
 public:
  /// Reserves what is not 0, on the current device. Throws zero::Error, in the name of the device,
  /// where it has no room for all of it.
  Arenas(std::string_view device, const BytesByClass& reserve);

  Arena& of(MemoryClass memory_class) { return arenas_[static_cast<std::size_t>(memory_class)]; }
  /// Arena::high_water() of each.
  BytesByClass high_water() const;
  /// Bytes that the driver gave, in pages.
  std::int64_t taken() const;

 private:
  std::array<Arena, kMemoryClasses> arenas_;
};

}  // namespace zero::cuda
