// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/training_state.h"

#include <algorithm>
#include <utility>

#include "architecture/family.h"
#include "base/checked_math.h"
#include "checkpoint/checkpointer.h"
#include "launch/config/train_config.h"
#include "launch/train/compute_check.h"
#include "launch/train/tokenizer_files.h"
#include "model/decoder.h"

namespace zero {
namespace {

CheckpointOptions checkpoint_options(const TrainConfig& config, const SaveRules& rules) {
  const TrainConfig::Checkpoints& checkpoints = config.checkpoints;
  // A run that only resumes saves nothing; the folder is then but a name.
  return {.folder = checkpoints.folder.empty() ? checkpoints.resume : checkpoints.folder,
          .keep_last = checkpoints.keep_last,
          .keep_every = checkpoints.keep_every,
          .file_bytes = checkpoints.file_bytes,
          .weight_files = weight_folder_files(config),
          .names = file_names(config.model),
          .rules = &rules,
          .disk = config.checkpoints.disk};
}

}  // namespace

TrainingState::TrainingState(const TrainConfig& config, Mesh& mesh, Device& device,
                             UnitListener* listener, PassProgress initialising)
    : device_(device),
      tokens_(checked_mul(config.batch.micro, config.data.sequence_length)),
      slots_(std::min<std::int64_t>(2, config.batch.accumulation)),
      engine_(std::make_unique<Engine>(mesh, device, config.engine)) {
  const BatchShape shape{.batch = config.batch.micro, .sequence = config.data.sequence_length};
  if (config.loss_scale_rule) {
    engine_->require_same("loss scale", config.loss_scale_rule->text());
  }
  model_ = std::make_unique<Decoder>(*engine_, config.model, shape, listener, config.tensor,
                                     config.recompute.plan);
  engine_->seal({.order = model_->order(),
                 .accumulation_steps = narrow<int>(config.batch.accumulation),
                 .initialising = std::move(initialising)});
  if (uses_file(config.engine.tiers) && device.has_memory()) {
    device.transfer().synchronize();  // the first writes tell how the disk takes them
    state_transfers_ =
        files::disk().io_description();  // of the newest queue: checkpoints have more
  }
  model_->allocate();
  if (const std::int64_t every = config.run.check_compute_every; every > 0) {
    compute_check_ =
        std::make_unique<ComputeCheck>(every, config.run.seed, *engine_, mesh, *model_);
    model_->check_blocks(compute_check_.get());
  }
  if (config.checkpoints.used()) {
    checkpointer_ =
        std::make_unique<Checkpointer>(*engine_, checkpoint_options(config, save_rules_));
  }
  const std::int64_t ids = checked_mul(slots_, tokens_);
  inputs_ = device.allocate_host(ids, DType::i32, MemoryClass::staging, "inputs");
  targets_ = device.allocate_host(ids, DType::i32, MemoryClass::staging, "targets");
  loss_ = device.allocate_host(1, DType::fp64, MemoryClass::staging, "loss");
  // The planner cannot know whether there is a checkpoint, so the memory of a load is always
  // charged.
  if (checkpointer_ && !device.has_memory()) checkpointer_->load(config.checkpoints.resume);
}

TrainingState::~TrainingState() {
  try {
    device_.compute().synchronize();
    device_.communication().synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch): errors of work whose results are dropped
  }
}

}  // namespace zero
