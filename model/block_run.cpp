// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/block_run.h"

namespace zero {
namespace {

bool lives_alike(const BlockRun& a, const BlockRun& b) {
  return a.again == b.again && a.grouped == b.grouped;
}

}  // namespace

bool BlockRun::computes_again(BlockActivation tensor) const {
  switch (tensor) {
    case BlockActivation::x:
      return again.input || partitioned;
    case BlockActivation::statistics:
      return again.input;
    case BlockActivation::x_share:
      return false;
    case BlockActivation::normed:
    case BlockActivation::qkv:
      return again.qkv;
    case BlockActivation::logsumexp:
    case BlockActivation::attended:
      return again.attended;
    case BlockActivation::projected:
    case BlockActivation::projected_statistics:
    case BlockActivation::middle:
    case BlockActivation::middle_statistics:
      return again.middle;
    case BlockActivation::middle_normed:
    case BlockActivation::hidden:
    case BlockActivation::activated:
    case BlockActivation::output:
    case BlockActivation::output_statistics:
      break;
  }
  return again.hidden;
}

std::vector<BlockRun> block_runs(std::int64_t layers, const RecomputePlan& plan, bool partitions) {
  std::vector<BlockRun> runs;
  const auto one = [&](std::int64_t i) {
    const BlockRecompute again = plan.block(i);
    return BlockRun{.first = i,
                    .again = again,
                    .grouped = plan.first_of_group(i) != plan.last_of_group(i),
                    .partitioned = partitions && plan.keeps_input_alone(i)};
  };
  for (std::int64_t i = 0; i < layers; ++i) {
    const BlockRun own = one(i);
    const bool begins = i <= 1 || !lives_alike(runs.back(), own);
    const bool ends = i + 1 == layers || !lives_alike(own, one(i + 1));
    if (begins || ends) {
      runs.push_back(own);
    } else {
      ++runs.back().count;
    }
  }
  return runs;
}

}  // namespace zero
