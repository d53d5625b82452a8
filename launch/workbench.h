// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "engine/engine.h"
#include "launch/train_config.h"
#include "model/model.h"

namespace zero {

/// Everything a run keeps in memory: engine, model, and the host's side of a micro-batch. The
/// planner makes the same on a device without memory, so that plan and run cannot differ.
/// Constructing it is collective; the mesh (of the
/// configuration's shape), device and listener (of the model's
/// operations) must outlive it.
class Workbench {
 public:
  Workbench(const TrainConfig& config, Mesh& mesh, Device& device, OpListener* listener = nullptr);

  Engine& engine() { return *engine_; }
  Model& model() { return *model_; }
  // All in host memory.
  /// Token ids of one micro-batch: i32, batch x sequence, row-major.
  View inputs() const { return inputs_.view(); }
  View targets() const { return targets_.view(); }
  View loss() const { return loss_.view(); }  ///< fp64, one element
  View logits() const {
    return logits_.view();
  }  ///< fp32, vocabulary; empty unless text is sampled

 private:
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Model> model_;
  Buffer inputs_;
  Buffer targets_;
  Buffer loss_;
  Buffer logits_;
};

}  // namespace zero
