// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/block_windows.h"

#include <algorithm>

#include "base/checked_math.h"
#include "base/error.h"

namespace zero {

BlockWindows::BlockWindows(Device& device, Communicator& group, const BlockLayout& layout,
                           const Size& size, std::span<const Buffer> shards)
    : device_(device), group_(group), layout_(layout), blocks_(size.blocks), shards_(shards) {
  const std::int64_t count = std::min(size.windows, size.blocks);
  const std::int64_t bytes = layout.window_bytes();
  memory_ = group
                .allocate_shared(device, checked_mul(count, bytes), DType::u8,
                                 MemoryClass::gathered, "windows")
                .buffer;
  for (std::int64_t i = 0; i < count; ++i) windows_.push_back({memory_.slice(i * bytes, bytes)});
}

BlockWindows::~BlockWindows() {
  try {
    device_.communication().synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the stream's next use throws the error
  }
}

void BlockWindows::prefetch() {
  Stream& communication = device_.communication();
  for (; gathered_ < used_ + std::ssize(windows_); ++gathered_) {
    Window& to = window(gathered_);
    const std::int64_t block = gathered_ % blocks_;
    communication.wait(to.released);
    for (const BlockLayout::Gather& gather :
         layout_.gathers(shards_[static_cast<std::size_t>(block)].view(), to.memory)) {
      if (gather.full.total() == 0) continue;
      group_.all_gather(gather.mine, gather.full, communication,
                        {fmt::format("block {}", block), {}});
    }
    to.gathered = communication.record();
  }
}

View BlockWindows::use(std::int64_t i) {
  ZERO_CHECK(used_ % blocks_ == i, "block {} is used; expected block {}, the next in order", i,
             used_ % blocks_);
  prefetch();
  const Window& of = window(used_);
  device_.compute().wait(of.gathered);
  return of.memory;
}

void BlockWindows::release() noexcept {
  try {
    window(used_).released = device_.compute().record();
  } catch (...) {  // NOLINT(bugprone-empty-catch): a failed stream, whose next use throws
  }
  ++used_;
}

}  // namespace zero
