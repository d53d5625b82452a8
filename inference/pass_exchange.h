// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "inference/model_ranks.h"
#include "ops/inference_ops.h"

namespace zero {

/// What the ranks of one model are about to compute: a pass each, that of the ranks of a tensor
/// group the same. Known by all ranks, because each has a part of the vocabulary for all of them.
class PassExchange {
 public:
  /// For passes of up to `rows` rows, on every rank. `device` and the ranks must outlive this.
  PassExchange(Device& device, const ModelRanks& ranks, std::int64_t rows);

  /// Tells all ranks of this rank's pass and waits for theirs. Collective. Throws the same
  /// zero::Error on every rank if the ranks of a tensor group come with different passes.
  void run(const PassRows& pass);

  /// Of the last run().
  struct Pass {
    std::span<const std::int32_t> tokens;
    std::int64_t logit_rows = 0;
  };
  Pass of(int shard) const;
  /// Of all shards.
  std::int64_t rows() const;
  std::int64_t logit_rows() const;

 private:
  std::span<const std::int32_t> told(int rank) const;

  Device& device_;
  const ModelRanks ranks_;
  std::int64_t each_;               // numbers that a rank tells
  std::vector<std::int32_t> told_;  // of each rank: kFigures, then tokens
};

}  // namespace zero
