// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/block_layout.h"

#include <algorithm>

#include "base/checked_math.h"
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

}  // namespace zero
