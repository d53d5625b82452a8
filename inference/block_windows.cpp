// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/block_windows.h"

#include <algorithm>

#include "base/checked_math.h"
#include "base/error.h"
#include "partition/tensor_slice.h"

namespace zero {
namespace {

constexpr std::int64_t kAlignment = 64;  // bytes, of matrices

}  // namespace

BlockLayout::BlockLayout(const InferenceOps& ops, const Shapes& shapes, int rank, int ranks)
    : rank_(rank), ranks_(ranks) {
  for (std::size_t i = 0; i < kMatrices.size(); ++i) {
    Matrix& matrix = matrices_[i];
    matrix.shape = shapes[i];
    matrix.cut = ops.weight_cut(matrix.shape);
    const Slices::Range kept = groups(matrix, rank);
    matrix.first = std::min(kept.begin * matrix.cut.columns, matrix.shape.out);
    matrix.kept = matrix.shape;
    matrix.kept.out =
        std::min((kept.begin + kept.count) * matrix.cut.columns, matrix.shape.out) - matrix.first;
    matrix.bytes = ops.weight_bytes(matrix.shape);
    matrix.kept_bytes = ops.weight_bytes(matrix.kept);
    matrix.at = window_bytes_;
    matrix.kept_at = shard_bytes_;
    window_bytes_ += round_up(matrix.bytes, kAlignment);
    shard_bytes_ += round_up(matrix.kept_bytes, kAlignment);
  }
}

Slices::Range BlockLayout::groups(const Matrix& matrix, int rank) const {
  const TensorSlice::Range range =
      even_range(div_ceil(matrix.shape.out, matrix.cut.columns), rank, ranks_);
  return {range.begin, range.count};
}

std::vector<BlockLayout::Gather> BlockLayout::gathers(const View& shard, const View& window) const {
  std::vector<Gather> all;
  for (const Matrix& matrix : matrices_) {
    std::int64_t at = matrix.at;
    std::int64_t mine = matrix.kept_at;
    for (const std::int64_t bytes : matrix.cut.part_bytes) {
      Gather gather{{}, {window, {}}};
      std::int64_t total = 0;
      for (int rank = 0; rank < ranks_; ++rank) {
        const Slices::Range part = groups(matrix, rank);
        gather.full.ranges.push_back({at + part.begin * bytes, part.count * bytes});
        total += part.count * bytes;
      }
      gather.mine = shard.slice(mine, groups(matrix, rank_).count * bytes);
      at += total;
      mine += gather.mine.count();
      all.push_back(std::move(gather));
    }
  }
  return all;
}

BlockWindows::BlockWindows(Device& device, Communicator& group, const BlockLayout& layout,
                           const Size& size, BlockShards& shards)
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
    const View shard = shards_.use(block, communication);
    for (const BlockLayout::Gather& gather : layout_.gathers(shard, to.memory)) {
      if (gather.full.total() == 0) continue;
      group_.all_gather(gather.mine, gather.full, communication,
                        {fmt::format("block {}", block), {}});
    }
    to.gathered = communication.record();
    shards_.release(communication);
  }
  shards_.fetch();
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
