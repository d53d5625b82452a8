// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/training_log.h"

#include <fmt/format.h>

#include "base/error.h"

namespace zero {

void TrainingLog::start_over() {
  if (log_ == nullptr) return;
  const std::string aside = log_->start_over();
  if (aside.empty()) return;
  console_.line(
      fmt::format("{} begins anew; the log of an earlier run is kept as {}", log_->path(), aside));
}

void TrainingLog::go_on(const LogPoint& at) {
  if (log_ == nullptr) return;
  const RunLog::Cut cut = log_->go_on(at);
  if (cut.lines > 0) {
    console_.line(fmt::format("{}: the {} lines behind step {} are cut off", log_->path(),
                              cut.lines, cut.last_step));
  } else if (!cut.aside.empty()) {
    console_.line(fmt::format("warning: the first line of {} is no JSON; the log is kept as {}",
                              log_->path(), cut.aside));
  }
  if (cut.last_step != at.step) {
    console_.line(
        fmt::format("warning: {} ends at step {}, the checkpoint is of step {}: the "
                    "lines between are lost",
                    log_->path(), cut.last_step, at.step));
    return;
  }
  const int before = cut.line.value("mesh_tensor", 1);
  if (before == config_.mesh.tensor) return;
  console_.line(
      fmt::format("mesh.tensor was {} before, and is {}: the states are the same bit for "
                  "bit, the steps from here on round differently",
                  before, config_.mesh.tensor));
}

void TrainingLog::write(const nlohmann::ordered_json& line) {
  if (log_ == nullptr) return;
  try {
    log_->write(line);
  } catch (const Error& error) {
    log_ = nullptr;
    failed_ = true;
    console_.end_progress();
    console_.line(fmt::format("warning: {}; {}", error.what(),
                              config_.checkpoints.folder.empty()
                                  ? "the run goes on without a log"
                                  : "the run saves a checkpoint, then ends"));
  }
}

}  // namespace zero
