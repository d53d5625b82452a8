// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_options.h"
#include "checkpoint/host_blocks.h"
#include "checkpoint/rank_statuses.h"
#include "checkpoint/state_tensors.h"
#include "weights/damaged_checkpoint.h"

namespace zero {

/// Loads checkpoints into an engine: Checkpointer::load(). No save may be in flight.
class CheckpointLoader {
 public:
  /// `blocks`: those of a checkpoint that this engine would save; decide the memory of a load.
  CheckpointLoader(const StateSource& of, const CheckpointOptions& options, std::int64_t blocks);

  std::optional<Resumed> load(const std::string& which, const AcceptCheckpoint& accept);
  const std::vector<std::string>& passed_over() const { return passed_over_; }

 private:
  struct Candidate {
    std::string path;
    CheckpointFailure fault;  // why the checkpoint cannot be loaded, if a reason is known
    bool partial = false;     // never was a checkpoint
  };

  std::vector<Candidate> candidates(const std::string& which);
  std::vector<Candidate> find(const std::string& which) const;
  CheckpointFailure open(const std::string& path);
  void check(const AcceptCheckpoint& accept);
  CheckpointFailure read(HostBlocks& blocks);
  void restore();
  [[noreturn]] void refuse_to_begin_anew() const;

  Engine& engine_;
  files::FileSystem& disk_;
  std::string folder_;
  NameMap names_;
  RankStatuses statuses_;
  StateTensors tensors_;
  std::int64_t blocks_;
  std::vector<std::string> passed_over_;

  // Of the checkpoint that is tried.
  std::unique_ptr<CheckpointReader> reader_;
  std::optional<CheckpointLayout> layout_;
};

}  // namespace zero
