// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "model/recompute.h"
#include "tests/model/training_harness.h"

// Small models of several blocks, and plans of every kind for them.
namespace zero::testing {

inline constexpr std::int64_t kBlocks = 5;
inline constexpr BatchShape kRowOfTokens{1, 9};

/// One block of each kind: kept, of one tensor, whole, two of a group of two.
inline RecomputePlan mixed_plan() {
  RecomputePlan plan = RecomputePlan::full(kBlocks);
  plan.blocks[0] = {};
  plan.blocks[1] = {.hidden = true};
  plan.blocks[4].input = true;
  return plan;
}

inline RecomputePlan partitioned_plan(RecomputePlan plan) {
  plan.partition_inputs = true;
  return plan;
}

inline RecomputePlan on_host(RecomputePlan plan) {
  plan.inputs_on_host = true;
  return plan;
}

inline RecomputePlan with_outputs(RecomputePlan plan) {
  plan.outputs = BlockOutputs::kept;
  return plan;
}

inline std::vector<RecomputePlan> recompute_plans() {
  using enum BlockTensor;
  return {with_outputs({}),
          with_outputs(RecomputePlan::full(kBlocks)),
          with_outputs(RecomputePlan::grouped(kBlocks, 2)),
          with_outputs(RecomputePlan::selective(kBlocks, {qkv})),
          with_outputs(partitioned_plan(mixed_plan())),
          RecomputePlan::full(kBlocks),
          RecomputePlan::full(kBlocks, 2),
          RecomputePlan::grouped(kBlocks, 2),
          partitioned_plan(RecomputePlan::grouped(kBlocks, 1)),
          RecomputePlan::selective(kBlocks, {qkv}),
          RecomputePlan::selective(kBlocks, {attended, hidden}),
          RecomputePlan::selective(kBlocks, {qkv, attended, hidden}),
          partitioned_plan(RecomputePlan::full(kBlocks)),
          partitioned_plan(mixed_plan())};
}

inline DecoderShape gpt2_of_blocks() { return tiny_gpt2({{"layers", kBlocks}}); }

inline DecoderShape llama_of_blocks(DecoderShape config) {
  config.layers = kBlocks;
  return config;
}

}  // namespace zero::testing
