// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_options.h"
#include "files/file_system.h"
#include "launch/config/run_identity.h"
#include "launch/config/train_config.h"
#include "launch/data/data_order.h"
#include "launch/train/run_progress.h"
#include "launch/train/run_values.h"
#include "launch/train/stop_votes.h"

namespace zero {

class Batches;
class Console;
class TrainingLog;
class TrainingState;
struct StepReport;

/// What a trainer needs to save and resume; all must outlive it.
struct RunCheckpointParts {
  const TrainConfig& config;
  const Batches& batches;
  TrainingState& training_state;
  Console& console;
  TrainingLog& log;
  Signals* signals = nullptr;               ///< of this process; null: none arrive
  Signals::Time started{};                  ///< of the program
  RunProgress* progress = nullptr;          ///< told of checkpoints; null: none
  std::function<void()> saving{};           ///< called before each save; empty: nobody
  files::FileSystem& disk = files::disk();  ///< asked for room
};

/// The checkpoints of a training run, as one rank sees them: where the run goes on, after which
/// steps it saves, and when it ends early. Calls are collective unless marked.
class RunCheckpoints {
 public:
  explicit RunCheckpoints(const RunCheckpointParts& parts);

  /// Loads the states of the checkpoint that run.resume asks for, if there is one. Returns the
  /// steps done: 0 for a run that begins. Throws AgreedError, or zero::Error if only this rank
  /// knows; also if a disk has no room for what the run will have to save.
  std::int64_t resume();
  /// The order in which the run reads its data: behind what the loaded checkpoint's run has read.
  /// Not collective.
  const DataOrder& order() const { return order_; }
  /// Call after resume(), and once a run that begins has its weights: cuts the log of a run that
  /// goes on; if the run begins or is a fork, moves a log that is there away.
  void prepare_log();
  /// From here on signals ask for a checkpoint rather than end the process, if the run saves any.
  /// Not collective.
  void listen();
  /// Whether a signal has asked this rank for the end of a run that saves.
  bool ending() const {
    return !options_.folder.empty() && signals_ != nullptr && signals_->asked().ending != 0;
  }
  /// The run ends behind its next step, whose states are saved, if it saves any. Call on all ranks
  /// alike. Not collective.
  void end() { requests_.end(); }
  /// This rank's StepOptions::vote. Not collective.
  std::int64_t vote();
  /// What the trainer knows after a step, and keeps in checkpoints.
  struct Kept {
    std::int64_t skipped_in_row = 0;  ///< steps up to this one whose update was skipped
    std::optional<LossScaler::State> loss_scaler{};
    std::vector<std::string>
        digests{};  ///< of the training files, as DataCheck::agreed() gives them
  };
  /// Call after each step, whose line is in the log: tells of finished saves, begins one if it is
  /// due. Returns what ends the run. Throws AgreedError if a required save has failed.
  Decision after_step(const StepReport& report, const Kept& kept);
  /// The step just done was not finite, and the run ends: the states before it, whose save may be
  /// in flight, have perhaps diverged, and are not committed over good ones.
  void give_up(const std::string& why);
  /// Waits for the save in flight, tells of it, and stops listening. Returns the signal that has
  /// asked for an end since the last step, 0 for none.
  int finish();
  /// What the checkpoint that resume() loaded has kept; no digests if this run's data are to be
  /// others. Not collective.
  Kept kept() const { return {values_.skipped_in_row, values_.loss_scaler, values_.digests}; }
  /// The field "run" of the log's first line. Not collective.
  const std::string& run_mark() const { return values_.log.run; }
  /// "the newest checkpoint is of step 500"; not collective.
  std::string newest_text() const;
  /// newest_text(), and where a later start goes on. Not collective.
  std::string next_text() const;
  /// Of a run that has done all steps: a line if it has no checkpoint of the last one, else empty.
  /// Not collective.
  std::string missing_text() const;

 private:
  std::optional<Resumed> load();
  void accept(const nlohmann::ordered_json& extra);
  bool forks(const Resumed& resumed) const;
  void say_resumed(const Resumed& resumed);
  void say_position() const;
  void check_nothing_ahead(const std::optional<Resumed>& resumed) const;
  void save(const StepReport& report);
  void tell_reports();
  void tell(const SaveReport& report);
  void check_room() const;
  nlohmann::ordered_json extra(const StepReport& report);

  const TrainConfig& config_;
  const TrainConfig::Checkpoints& options_;
  DataOrder order_;
  TrainingState& training_state_;
  Console& console_;
  TrainingLog& log_;
  Signals* signals_;
  RunProgress* progress_;
  std::function<void()> saving_;
  files::FileSystem& disk_;
  nlohmann::ordered_json identity_;
  StopVotes requests_;
  bool due_ = false;        // a save is put off until a step's update was made
  bool first_save_ = true;  // none of this process is done
  // The run ends with a step whose update was skipped, and saves it if it can; -1: no such step.
  std::int64_t skipped_save_ = -1;
  RunValues values_;  // of the checkpoint that accept() has accepted, or the last
  std::vector<IdentityChange> changes_;  // of the configuration since that checkpoint
  std::optional<Resumed> resumed_{};
  std::int64_t saved_step_ = -1;  // of the newest checkpoint
};

}  // namespace zero
