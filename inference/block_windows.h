// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "architecture/decoder_shape.h"
#include "collectives/communicator.h"
#include "collectives/slices.h"
#include "device/device.h"
#include "inference/block_shards.h"
#include "ops/inference_ops.h"

namespace zero {

/// Where the matrices of a block lie in memory: whole in a window and, in a rank's shard, the
/// columns that the rank keeps of each, as even a share as groups of columns (WeightCut) allow. On
/// one rank both are the same. All blocks are alike.
class BlockLayout {
 public:
  static constexpr std::array kMatrices = {BlockSlot::qkv_weight, BlockSlot::projection_weight,
                                           BlockSlot::hidden_weight, BlockSlot::output_weight};
  using Shapes = std::array<WeightShape, kMatrices.size()>;

  BlockLayout(const InferenceOps& ops, const Shapes& shapes, int rank, int ranks);

  struct Matrix {
    WeightShape shape;
    WeightShape kept;             ///< this rank's columns, a stored weight of its own
    std::int64_t first = 0;       ///< of these columns in the whole
    std::int64_t at = 0;          ///< bytes from the window's start
    std::int64_t bytes = 0;       ///< in the window
    std::int64_t kept_at = 0;     ///< bytes from the shard's start
    std::int64_t kept_bytes = 0;  ///< in the shard
    WeightCut cut;
  };
  const std::array<Matrix, kMatrices.size()>& matrices() const { return matrices_; }
  std::int64_t window_bytes() const { return window_bytes_; }
  std::int64_t shard_bytes() const { return shard_bytes_; }

  /// What ranks gather to make a block whole: mine is adjacent in the shard.
  struct Gather {
    View mine;
    Slices full;
  };
  std::vector<Gather> gathers(const View& shard, const View& window) const;

 private:
  /// Groups of columns of one matrix that a rank keeps.
  Slices::Range groups(const Matrix& matrix, int rank) const;

  int rank_;
  int ranks_;
  std::array<Matrix, kMatrices.size()> matrices_;
  std::int64_t window_bytes_ = 0;
  std::int64_t shard_bytes_ = 0;
};

/// Gathers the matrices of blocks ahead of their use, where each rank keeps a shard, in memory or
/// in a file, which is read ahead of the gather: ZeRO inference (Aminabadi et al. 2022). Blocks are
/// used in order, pass after pass; the first blocks of the next pass are gathered while the last of
/// this one compute. Windows are memory that the ranks of a host share, if they can share any. All
/// ranks make the same calls.
class BlockWindows {
 public:
  struct Size {
    std::int64_t blocks = 0;
    std::int64_t windows = 2;  ///< blocks that are whole at a time
  };
  /// Allocates the windows, charged to gathered. Collective over `group`. All references must
  /// outlive this; `shards` must be loaded at the first prefetch().
  BlockWindows(Device& device, Communicator& group, const BlockLayout& layout, const Size& size,
               BlockShards& shards);
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
  BlockShards& shards_;
  Buffer memory_;
  std::vector<Window> windows_;
  // Uses of blocks since the start, in order.
  std::int64_t used_ = 0;
  std::int64_t gathered_ = 0;
};

}  // namespace zero
