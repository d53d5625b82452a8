// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "checkpoint/checkpoint_options.h"
#include "device/buffer.h"
#include "engine/engine_options.h"

namespace zero {

class Checkpointer;
class ComputeCheck;
class Device;
class Engine;
class Mesh;
class Model;
class UnitListener;
struct TrainConfig;

/// All memory of a run: engine, model, the staging memory of checkpoints, and the host buffers of a
/// micro-batch. The planner builds the same on a device without memory, so plan and
/// run cannot differ. Construction is collective; the mesh (of the configuration's shape), the
/// device and the listener (of the model's operations) must outlive it. `initialising` is told of
/// the initial values.
class TrainingState {
 public:
  TrainingState(const TrainConfig& config, Mesh& mesh, Device& device,
                UnitListener* listener = nullptr, PassProgress initialising = {});
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;
  /// Waits for work in flight before freeing its memory.
  ~TrainingState();

  Engine& engine() { return *engine_; }
  Model& model() { return *model_; }
  /// Null without run.check_compute_every.
  ComputeCheck* compute_check() { return compute_check_.get(); }
  /// How a rank's file of model states is moved (FileSystem::io_description()), if there is one.
  const std::string& state_transfers() const { return state_transfers_; }
  /// Null if the run neither saves nor loads checkpoints.
  Checkpointer* checkpointer() { return checkpointer_.get(); }
  /// Of the checkpointer.
  SaveRules& save_rules() { return save_rules_; }
  // Host memory of the micro-batches of a step, counted from 0.
  /// Token ids: i32, batch x sequence, row-major. Two buffers alternate, so that the host writes
  /// one while work on the other is in flight; the third micro-batch reuses the first's buffer.
  View inputs(std::int64_t micro_batch = 0) const { return slot(inputs_, micro_batch); }
  View targets(std::int64_t micro_batch = 0) const { return slot(targets_, micro_batch); }
  View loss() const { return loss_.view(); }  ///< fp64, one element, shared by all micro-batches

 private:
  View slot(const Buffer& buffer, std::int64_t micro_batch) const {
    return buffer.slice(micro_batch % slots_ * tokens_, tokens_);
  }

  Device& device_;
  std::int64_t tokens_;  // of a micro-batch
  std::int64_t slots_;   // buffers of token ids
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ComputeCheck> compute_check_;
  std::string state_transfers_;
  SaveRules save_rules_;
  std::unique_ptr<Checkpointer> checkpointer_;
  Buffer inputs_;
  Buffer targets_;
  Buffer loss_;
};

}  // namespace zero
