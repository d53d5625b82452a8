// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/exact_plan.h"

#include "collectives/backends.h"
#include "launch/config/train_config.h"
#include "launch/train/training_state.h"
#include "ops/ops.h"

namespace zero {
std::unique_ptr<Device> planned_device(const TrainConfig& config,
                                       const planning::ClockOptions& clock) {
  return config.run.device == DeviceKind::cuda ? plan_gpu(clock)
                                               : plan_device(config, MemorySpace::host, clock);
}

// What is live in each phase is not asked for: that goes through all micro-batches of a step
// (make_plan()).
ExactPlan exact_plan(const TrainConfig& config, BackendKind backend) {
  ExactPlan plan;
  for (const int rank : planned_ranks(config)) {
    const auto device = planned_device(config);
    const auto ranks = planning::communicator(rank, config.world, backend, device.get());
    Mesh mesh(*ranks, config.mesh);
    TrainingState state(config, mesh, *device);
    plan.memory = plan.memory.larger(MemoryUse::of(*device));
    if (rank == 0) plan.traffic = step_traffic(state, config.batch.accumulation);
  }
  return plan;
}

}  // namespace zero
