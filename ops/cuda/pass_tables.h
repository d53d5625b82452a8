// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "device/device.h"
#include "ops/cuda/attention_plan.h"

namespace zero::cuda {

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
