// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/run_progress.h"

#include <fmt/format.h>

namespace zero {

void RunProgress::saved(std::int64_t step, const std::string& folder) {
  const std::scoped_lock lock(mutex_);
  saved_step_ = step;
  folder_ = folder;
}

std::string RunProgress::kept() const {
  const std::scoped_lock lock(mutex_);
  if (folder_.empty() && !saves) {
    return steps_done > 0 ? "; nothing was saved (run.checkpoint.folder is not set)" : "";
  }
  if (folder_.empty()) {
    return searched ? "; nothing is kept: there is no checkpoint yet"
                    : "; the checkpoints of earlier starts, if any, are as they were";
  }
  if (steps_done <= saved_step_) {
    return fmt::format("; the newest checkpoint, {}, holds every step done", folder_);
  }
  return fmt::format("; nothing of the steps since step {} is kept; the newest checkpoint is {}",
                     saved_step_, folder_);
}

void RunProgress::flights_in(const std::string& folder) {
  const std::scoped_lock lock(mutex_);
  flights_ = folder;
}

std::string RunProgress::next_step() const {
  const std::scoped_lock lock(mutex_);
  std::string text;
  if (!folder_.empty()) {
    text = fmt::format("newest checkpoint: step {}; started again, the run goes on there",
                       saved_step_);
  } else if (!saves) {
    text = "no checkpoint (run.checkpoint.folder is not set): started again, the run begins anew";
  } else if (searched) {
    text = "no checkpoint yet: started again, the run begins anew";
  } else {
    text = "started again, the run goes on from its newest checkpoint, if there is one";
  }
  return flights_.empty() ? text : fmt::format("{}; more: zero_doctor {}", text, flights_);
}

}  // namespace zero
