// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "device/arena_layout.h"
#include "device/memory_ledger.h"

namespace zero::cuda {

/// Memory of the current device for the buffers of one class. With reserve(), one block holds them
/// all. Buffers without a block, or that do not fit there, take memory as they come: large ones
/// from the driver, which gives 2 MiB pages; small ones cut out of chunks of one page, so that many
/// small parameters do not take a page each. Every address is a multiple of 256. Used by one
/// thread.
class Arena {
 public:
  static constexpr std::int64_t kChunk = std::int64_t{2} << 20;
  static constexpr std::int64_t kLarge = std::int64_t{1}
                                         << 20;  ///< bytes from which on it is large

  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  /// Takes the block, of `bytes` > 0 and what fills their last page, before anything else is taken;
  /// false when the device has no room for it.
  bool reserve(std::int64_t bytes);
  /// `bytes` > 0; null when the device has no more.
  void* take(std::int64_t bytes);
  /// Frees memory of take(bytes).
  void give_back(void* data, std::int64_t bytes) noexcept;
  /// Bytes that the driver gave for all of it, in pages.
  std::int64_t taken() const { return taken_; }
  /// The most bytes needed so far: of the block, and beside it.
  std::int64_t high_water() const;

 private:
  /// Memory that small buffers are cut from. The block, if there is one, is the first.
  struct Chunk {
    std::byte* data;
    std::int64_t bytes;
    ArenaLayout layout;
  };

  std::byte* from_driver(std::int64_t bytes);
  static void* cut(Chunk& chunk, std::int64_t bytes);

  std::vector<Chunk> chunks_;
  bool reserved_ = false;
  std::int64_t taken_ = 0;
  std::int64_t most_taken_ = 0;
};

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
