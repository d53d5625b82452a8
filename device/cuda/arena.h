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

/// Memory of the current device for the buffers of one class. After reserve(), one block holds them
/// all. Buffers without a block, or that do not fit into it, are allocated on demand: large ones by
/// the driver, in pages of 2 MiB; small ones from chunks of one page, so that many small parameters
/// do not need a page each. Every address is a multiple of 256. Used by one thread.
class Arena {
 public:
  static constexpr std::int64_t kChunk = std::int64_t{2} << 20;
  static constexpr std::int64_t kLarge = std::int64_t{1}
                                         << 20;  ///< the fewest bytes of a large buffer

  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  /// Allocates the block, `bytes` > 0 rounded up to whole pages, before any take(); false if the
  /// device has no room for it.
  bool reserve(std::int64_t bytes);
  /// `bytes` > 0; null if the device is out of memory.
  void* take(std::int64_t bytes);
  /// Frees memory of take(bytes).
  void give_back(void* data, std::int64_t bytes) noexcept;
  /// Bytes allocated from the driver, in whole pages.
  std::int64_t taken() const { return taken_; }
  /// The peak bytes needed so far, inside and outside the block.
  std::int64_t high_water() const;

 private:
  /// Memory for small buffers. The block, if there is one, is the first.
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
  /// Reserves a block for each nonzero class on the current device. Throws zero::Error, with the
  /// device's name, if it has no room for all of them.
  Arenas(std::string_view device, const BytesByClass& reserve);

  Arena& of(MemoryClass memory_class) { return arenas_[static_cast<std::size_t>(memory_class)]; }
  /// Arena::high_water() of each.
  BytesByClass high_water() const;
  /// Bytes allocated from the driver, in whole pages.
  std::int64_t taken() const;

 private:
  std::array<Arena, kMemoryClasses> arenas_;
};

}  // namespace zero::cuda
