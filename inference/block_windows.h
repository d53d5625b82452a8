// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "device/device.h"
#include "inference/block_layout.h"

namespace zero {

/// Gathers the matrices of blocks ahead of their use, where each rank keeps a shard: ZeRO
/// inference (Aminabadi et al. 2022). Blocks are used in order, pass after pass; the first blocks
/// of the next pass are gathered while the last of this one compute. Windows are memory that the
/// ranks of a host share, if they can share any. All ranks make the same calls.
class BlockWindows {
 public:
  struct Size {
    std::int64_t blocks = 0;
    std::int64_t windows = 2;  ///< blocks that are whole at a time
  };
  /// Allocates the windows, charged to gathered. Collective over `group`. All references must
  /// outlive this; `shards`, one for each block, must exist at the first prefetch().
  BlockWindows(Device& device, Communicator& group, const BlockLayout& layout, const Size& size,
               std::span<const Buffer> shards);
  /// Waits for gathers under way.
  ~BlockWindows();
  BlockWindows(const BlockWindows&) = delete;
  BlockWindows& operator=(const BlockWindows&) = delete;

  /// Submits the gathers that windows are free for to the communication stream.
  void prefetch();
  /// The window of block `i`, behind whose gather compute goes on. Throws zero::Error unless the
  /// block is next in order.
  View use(std::int64_t i);
  /// Call after the last compute that uses the block. Starts no gather.
  void release() noexcept;

 private:
  struct Window {
    View memory;
    Event gathered{};
    Event released{};
  };
  Window& window(std::int64_t use) {
    return windows_[static_cast<std::size_t>(use % std::ssize(windows_))];
  }

  Device& device_;
  Communicator& group_;
  const BlockLayout& layout_;
  std::int64_t blocks_;
  std::span<const Buffer> shards_;
  Buffer memory_;
  std::vector<Window> windows_;
  // Uses of blocks since the start, in order.
  std::int64_t used_ = 0;
  std::int64_t gathered_ = 0;
};

}  // namespace zero
