// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "engine/engine.h"
#include "launch/config/train_config.h"
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
  Workbench(const Workbench&) = delete;
  Workbench& operator=(const Workbench&) = delete;
  /// Lets work in flight end before its memory does.
  ~Workbench();

  Engine& engine() { return *engine_; }
  Model& model() { return *model_; }
  // All in host memory, of a step's micro-batch, from 0.
  /// Token ids: i32, batch x sequence, row-major. Two micro-batches have memory of their own, so
  /// that one is written while the work of the other is on its way; the third has the first's.
  View inputs(std::int64_t micro_batch = 0) const { return slot(inputs_, micro_batch); }
  View targets(std::int64_t micro_batch = 0) const { return slot(targets_, micro_batch); }
  View loss() const { return loss_.view(); }  ///< fp64, one element; of all micro-batches
  View logits() const {
    return logits_.view();
  }  ///< fp32, vocabulary; empty unless text is sampled

 private:
  View slot(const Buffer& buffer, std::int64_t micro_batch) const {
    return buffer.slice(micro_batch % slots_ * tokens_, tokens_);
  }

  Device& device_;
  std::int64_t tokens_;  // of a micro-batch
  std::int64_t slots_;   // micro-batches that have ids of their own
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Model> model_;
  Buffer inputs_;
  Buffer targets_;
  Buffer loss_;
  Buffer logits_;
};

}  // namespace zero
