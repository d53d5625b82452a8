// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "launch/config/train_config.h"
#include "launch/telemetry/console.h"
#include "launch/telemetry/run_log.h"

namespace zero {

/// The log of a training run: the first rank's file, which can fail without ending a step. Other
/// ranks have none, and their calls do nothing. No call is collective.
class TrainingLog {
 public:
  /// `log`: null if this rank has none. All must outlive the object.
  TrainingLog(const TrainConfig& config, RunLog* log, Console& console)
      : config_(config), log_(log), console_(console) {}

  /// Whether this rank has a log, which has not failed.
  bool open() const { return log_ != nullptr; }
  bool failed() const { return failed_; }
  /// The file, to sync() it from another thread; null unless open().
  RunLog* file() const { return log_; }
  /// Moves a log that is there away.
  void start_over();
  /// Cuts off the lines behind the checkpoint's step, and tells people of what is cut or missing.
  void go_on(const LogPoint& at);
  /// If the line cannot be written, the log has failed: a run that saves saves after its next step
  /// and ends; another goes on without a log.
  void write(const nlohmann::ordered_json& line);

 private:
  const TrainConfig& config_;
  RunLog* log_;
  Console& console_;
  bool failed_ = false;
};

}  // namespace zero
