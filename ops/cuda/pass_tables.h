// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "device/device.h"
#include "ops/inference_ops.h"

namespace zero::cuda {

/// Positions whose softmax one block of threads computes at a time, at multiples of it: a split.
/// Splits are added up in the order of positions, by one block or by several and then by a kernel
/// of their own, with the same bits.
inline constexpr std::int64_t kSplit = 128;
/// The widest head.
inline constexpr int kMostHeadWidth = 256;

/// Query rows that share loads of keys and values: rows of one sequence, in each the query heads of
/// one key head. A sequence's queries are numbered in this order. A tile without queries is empty.
struct AttentionTile {
  std::int32_t table = 0;     ///< where the sequence's blocks begin in the pass's block tables
  std::int32_t position = 0;  ///< of the sequence's first row
  std::int32_t row = 0;       ///< of the pass: that row
  std::int32_t query = 0;     ///< the first
  std::int32_t queries = 0;
  std::int32_t split = -1;  ///< the only one to compute; -1: all
  std::int32_t parts = 0;   ///< the slot of the first query's partial result, if there is one
};

/// A query whose splits are computed by several blocks. One without splits is empty.
struct SplitQuery {
  std::int32_t row = 0;  ///< of the pass
  std::int32_t position = 0;
  std::int32_t head = 0;  ///< among those of one key head
  std::int32_t parts = 0;
  std::int32_t stride = 0;  ///< slots between splits
  std::int32_t splits = 0;
};

/// Tiles of a pass: of sequences with few queries, as while tokens are generated, and of others.
struct AttentionPlan {
  std::vector<AttentionTile> few, many;
  std::vector<SplitQuery> splits;
};

/// Cuts the attention of passes into tiles.
class AttentionPlanner {
 public:
  AttentionPlanner() = default;
  explicit AttentionPlanner(const PassLimits& limits);

  /// Queries of a tile, at most.
  int few_queries() const { return static_cast<int>(few_); }
  int many_queries() const { return static_cast<int>(many_); }
  std::int64_t most_tiles() const {
    return limits_.rows * div_ceil(queries_per_kv_, many_) + slots_;
  }
  /// Slots of partial results, of one key head.
  std::int64_t slots() const { return slots_; }

  AttentionPlan plan(const PassRows& pass) const;

 private:
  // Enough to occupy a GPU's multiprocessors several times over.
  static constexpr std::int64_t kMostSlots = 8192;

  struct Cut;
  void add(const Cut& cut, AttentionPlan& plan, std::int64_t& slots) const;

  PassLimits limits_;
  std::int64_t queries_per_kv_ = 1;
  std::int64_t few_ = 1;
  std::int64_t many_ = 1;
  std::int64_t slots_ = 0;
};

/// The rows of a pass in the device's memory.
struct DevicePass {
  const std::int32_t* tokens = nullptr;     ///< of each row
  const std::int32_t* positions = nullptr;  ///< of each row
  const std::int32_t* tables = nullptr;     ///< of each row: where its sequence's blocks begin
  const std::int32_t* blocks = nullptr;     ///< block tables of all sequences
  const std::int32_t* logit_rows = nullptr;
  const AttentionTile* few = nullptr;
  const AttentionTile* many = nullptr;
  const SplitQuery* splits = nullptr;
  std::int64_t rows = 0;
  std::int64_t logit_count = 0;
  std::int64_t few_count = 0;
  std::int64_t many_count = 0;
  std::int64_t split_count = 0;

  /// Of a pass whose sequences have few queries each, as while tokens are generated. All counts and
  /// places of such a pass follow from them.
  std::optional<PassSizes> sizes() const {
    if (many_count > 0) return std::nullopt;
    return PassSizes{rows, logit_count, few_count, split_count};
  }
};

/// Uploads the rows of passes, one copy each, in the order of the compute stream. Tiles of few
/// queries and split queries are filled up with empty ones to a power of two, so that passes of a
/// few sizes follow one another while sequences grow (DevicePass::sizes); the block tables, whose
/// length changes most often, lie behind the lists. Two passes are
/// staged at a time, in pinned memory: the host waits only if the copy of the last but one has not
/// run.
class PassTables {
 public:
  PassTables() = default;
  /// Allocates for passes up to `limits`. `device` must outlive the tables.
  PassTables(Device& device, const PassLimits& limits);

  const AttentionPlanner& planner() const { return planner_; }
  /// Valid for work that is submitted before the next upload. `pass` is not needed afterwards.
  /// Throws zero::Error if it is larger than the limits.
  const DevicePass& upload(const PassRows& pass);
  const DevicePass& pass() const { return pass_; }

 private:
  struct Staging {
    Buffer memory;
    Event copied;
  };

  Device* device_ = nullptr;
  AttentionPlanner planner_;
  Buffer memory_;
  std::array<Staging, 2> staging_;
  std::size_t next_ = 0;
  DevicePass pass_;
};

}  // namespace zero::cuda
