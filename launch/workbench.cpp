// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/workbench.h"

#include <algorithm>

#include "base/checked_math.h"

namespace zero {

Workbench::Workbench(const TrainConfig& config, Mesh& mesh, Device& device, OpListener* listener)
    : device_(device),
      tokens_(checked_mul(config.batch.micro, config.data.sequence_length)),
      slots_(std::min<std::int64_t>(2, config.batch.accumulation)),
      engine_(std::make_unique<Engine>(mesh, device, config.engine)) {
  const BatchShape shape{.batch = config.batch.micro, .sequence = config.data.sequence_length};
  model_ = make_model(*engine_, config.model, shape, listener, config.tensor);
  engine_->seal(
      {.order = model_->order(), .accumulation_steps = narrow<int>(config.batch.accumulation)});
  model_->allocate();
  const std::int64_t ids = checked_mul(slots_, tokens_);
  inputs_ = device.allocate_host(ids, DType::i32, MemoryClass::staging, "inputs");
  targets_ = device.allocate_host(ids, DType::i32, MemoryClass::staging, "targets");
  loss_ = device.allocate_host(1, DType::fp64, MemoryClass::staging, "loss");
  if (config.run.sample > 0) {
    logits_ =
        device.allocate_host(model_->vocabulary(), DType::fp32, MemoryClass::staging, "logits");
  }
}

Workbench::~Workbench() {
  try {
    device_.compute().synchronize();
    device_.communication().synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch): errors of work whose results are dropped
  }
}

}  // namespace zero
