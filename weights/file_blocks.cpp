// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "weights/file_blocks.h"

#include <isa-l/crc.h>

#include <algorithm>

#include "base/checked_math.h"
#include "base/error.h"

namespace zero {

std::int64_t blocks_of(std::int64_t bytes) {
  return bytes / kBlockBytes + (bytes % kBlockBytes != 0 ? 1 : 0);
}

// ISA-L inverts neither the state it is given nor the state it returns, and takes a buffer that it
// only reads as one that is not const.
std::uint32_t crc32c(std::span<const std::byte> bytes) {
  auto* const data = const_cast<std::byte*>(bytes.data());  // NOLINT(*-const-cast)
  return ~crc32_iscsi(reinterpret_cast<unsigned char*>(data), narrow<int>(bytes.size()), ~0U);
}

FileBlocks::FileBlocks(std::span<const std::int64_t> bytes)
    : bytes_(bytes.begin(), bytes.end()), first_{0} {
  std::int64_t sum = 0;
  for (const std::int64_t size : bytes) {
    ZERO_CHECK(size >= 0 && !__builtin_add_overflow(sum, size, &sum),
               "files of {} bytes and more do not fit 63 bits together", sum);
    first_.push_back(first_.back() + blocks_of(size));
  }
}

std::int64_t FileBlocks::largest() const {
  return bytes_.empty() ? 0 : std::min(kBlockBytes, std::ranges::max(bytes_));
}

Block FileBlocks::at(std::int64_t number) const {
  ZERO_CHECK(number >= 0 && number < count(), "block {} was asked for, of {}", number, count());
  const auto next = std::upper_bound(first_.begin(), first_.end(), number);
  const auto file = static_cast<std::size_t>(next - first_.begin()) - 1;
  const std::int64_t index = number - first_[file];
  const std::int64_t begin = index * kBlockBytes;
  return {file, index, begin, std::min(kBlockBytes, bytes_[file] - begin)};
}

std::int64_t FileBlocks::number(std::size_t file, std::int64_t offset) const {
  ZERO_CHECK(offset >= 0 && offset < bytes_.at(file), "offset {} of file {}, which has {} bytes",
             offset, file, bytes_.at(file));
  return first_[file] + offset / kBlockBytes;
}

}  // namespace zero
