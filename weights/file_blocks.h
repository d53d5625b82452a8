// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace zero {

/// Bytes of a block, the grain of checkpoints: a block has one writer and one checksum, and is read
/// and verified whole.
inline constexpr std::int64_t kBlockBytes = std::int64_t{1} << 20;

/// Blocks of a file of `bytes` bytes; only the last may be shorter than kBlockBytes.
std::int64_t blocks_of(std::int64_t bytes);

struct Block {
  std::size_t file = 0;    ///< index in the list of files
  std::int64_t index = 0;  ///< in the file
  std::int64_t begin = 0;  ///< first byte in the file
  std::int64_t bytes = 0;  ///< 1 to kBlockBytes
};

/// The checksum of a block: CRC32C (Castagnoli) of `bytes`, of which there are less than 2 GiB.
/// Runs at memory speed.
std::uint32_t crc32c(std::span<const std::byte> bytes);

/// The blocks of a list of files, numbered 0 to count() - 1 over all files in order. Empty files
/// have none.
class FileBlocks {
 public:
  /// `bytes` are the sizes of the files. Throws zero::Error on sizes that do not fit 63 bits
  /// together.
  explicit FileBlocks(std::span<const std::int64_t> bytes);

  std::int64_t count() const { return first_.back(); }
  /// Bytes of the largest block; 0 without any.
  std::int64_t largest() const;
  /// The number of the first block of file `file`.
  std::int64_t first(std::size_t file) const { return first_.at(file); }
  /// The block of number `number`, below count().
  Block at(std::int64_t number) const;
  /// The number of the block that holds byte `offset` of file `file`.
  std::int64_t number(std::size_t file, std::int64_t offset) const;

 private:
  std::vector<std::int64_t> bytes_;
  std::vector<std::int64_t> first_;  // and, last, the number of all blocks
};

}  // namespace zero
