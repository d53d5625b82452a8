// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace zero::cuda {

/// Memory of the current device for buffers: large ones from the driver, which gives 2 MiB pages;
/// small ones cut out of chunks of one page, so that many small parameters do not take a page each.
/// Every address is a multiple of 256. Used by one thread.
class Arena {
 public:
  static constexpr std::int64_t kAlignment = 256;
  static constexpr std::int64_t kChunk = std::int64_t{2} << 20;
  static constexpr std::int64_t kLarge = std::int64_t{1}
                                         << 20;  ///< bytes from which on it is large

  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  /// `bytes` > 0; null when the device has no more.
  void* take(std::int64_t bytes);
  /// What take(bytes) gave.
  void give_back(void* data, std::int64_t bytes) noexcept;
  /// Bytes that the driver gave for all of it, in pages.
  std::int64_t taken() const { return taken_; }

 private:
  /// Free ranges of one chunk: bytes by address.
  using FreeRanges = std::map<std::byte*, std::int64_t>;
  struct Chunk {
    std::byte* data;
    FreeRanges free;
  };

  std::byte* from_driver(std::int64_t bytes);

  std::vector<Chunk> chunks_;
  std::int64_t taken_ = 0;
};

}  // namespace zero::cuda
