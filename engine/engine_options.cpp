// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_options.h"

#include <cmath>

#include "base/error.h"
#include "tiers/tier_file.h"

namespace zero {

std::string_view name_of(ReductionPolicy policy) {
  return policy == ReductionPolicy::boundary ? "boundary" : "every_micro_batch";
}

namespace {

void validate(const TierOptions& options, int stage) {
  const StateWindowOptions& windows = options.windows;
  ZERO_CHECK(options.optimizer_ratio >= 0 && options.optimizer_ratio <= 1,
             "engine: the share of optimizer states that are offloaded is {}, expected 0 to 1",
             options.optimizer_ratio);
  ZERO_CHECK(options.parameters_in_memory >= 0,
             "engine: {} elements of shards of parameters stay in memory, expected 0 or more",
             options.parameters_in_memory);
  ZERO_CHECK(options.fetch_buffers >= 1,
             "engine: shards of parameters are fetched through {} buffers, expected 1 or more",
             options.fetch_buffers);
  if (!uses_file(options) && !uses_host(options)) return;
  ZERO_CHECK(windows.buffers >= 1,
             "engine: offloaded states pass through {} buffers, expected 1 or more",
             windows.buffers);
  ZERO_CHECK(windows.buffer_elements >= StateWindowOptions::kGrain,
             "engine: a buffer has the states of {} elements, expected {} or more",
             windows.buffer_elements, StateWindowOptions::kGrain);
  ZERO_CHECK(options.parameters == Tier::device || stage == 3,
             "engine: parameters live in {}, as only shards of them can; stage is {}, expected 3",
             options.parameters == Tier::file ? "a file" : "host memory", stage);
  if (!uses_file(options)) return;
  ZERO_CHECK(!options.file.folder.empty(),
             "engine: states live in a file, but no folder is given for it");
  ZERO_CHECK(options.file.block_bytes > 0 && options.file.block_bytes % TierFile::kBlock == 0,
             "engine: a request to the file of states has {} bytes, expected a multiple of {}",
             options.file.block_bytes, TierFile::kBlock);
}

}  // namespace

void validate(const EngineOptions& options) {
  const DType gradient = options.gradient.value_or(options.compute);
  validate(options.optimizer);
  ZERO_CHECK(options.stage >= 0 && options.stage <= 3, "engine: stage is {}, expected 0, 1, 2 or 3",
             options.stage);
  ZERO_CHECK(options.compute == DType::fp32 || options.compute == DType::bf16 ||
                 options.compute == DType::fp16,
             "engine: compute dtype is {}, expected fp32, bf16 or fp16", name_of(options.compute));
  ZERO_CHECK(gradient == DType::fp32 || gradient == options.compute,
             "engine: gradient dtype is {}, expected fp32 or the compute dtype {}",
             name_of(gradient), name_of(options.compute));
  ZERO_CHECK(options.reduction == ReductionPolicy::every_micro_batch || options.stage <= 1,
             "engine: reduction \"boundary\" keeps a full gradient accumulator, which stage {} "
             "exists to avoid; use stage 0 "
             "or 1, or reduction \"every_micro_batch\"",
             options.stage);
  ZERO_CHECK(std::isfinite(options.gradient_clipping) && options.gradient_clipping >= 0,
             "engine: gradient_clipping is {}, expected 0 (none) or a finite norm above it",
             options.gradient_clipping);
  ZERO_CHECK(options.replica_check_every >= 0,
             "engine: replica_check_every is {}, expected a number of steps, or 0 (never)",
             options.replica_check_every);
  for (const ParameterGroup& group : options.groups) validate(group);
  validate(options.tiers, options.stage);
  const ScheduleLimits& limits = options.limits;
  ZERO_CHECK(limits.prefetch_elements.value_or(0) >= 0 && limits.live_elements.value_or(0) >= 0 &&
                 limits.persistence_threshold.value_or(0) >= 0 && limits.reuse_distance >= 0,
             "engine: schedule limits must not be negative (prefetch {}, live {}, persistence {}, "
             "reuse {})",
             limit_text(limits.prefetch_elements), limit_text(limits.live_elements),
             limit_text(limits.persistence_threshold), limits.reuse_distance);
  ZERO_CHECK(limits.reduce_bucket_elements > 0,
             "engine: reduce_bucket_elements is {}, expected at least 1",
             limits.reduce_bucket_elements);
}

}  // namespace zero
