// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "device/planning/clock.h"
#include "launch/train/plan.h"

namespace zero {

/// The planning device for a run of `config`, with `clock` if it has times; of a GPU, plan_gpu().
std::unique_ptr<Device> planned_device(const TrainConfig& config,
                                       const planning::ClockOptions& clock = {});

/// Memory of the fullest rank, and the bytes that the first rank sends in a step, as the engine
/// plans them.
struct ExactPlan {
  MemoryUse memory{};
  MeshTraffic traffic{};
};
ExactPlan exact_plan(const TrainConfig& config, BackendKind backend);

}  // namespace zero
