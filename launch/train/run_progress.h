// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

namespace zero {

/// How far a run is, for the last words of a process that a signal or a fault ends. Any thread may
/// use it.
class RunProgress {
 public:
  std::atomic<std::int64_t> steps_done{0};
  std::atomic<bool> logs{false};   ///< to a file
  std::atomic<bool> saves{false};  ///< run.checkpoint.folder is given
  /// Whether run.checkpoint.folder was searched for a checkpoint to go on from.
  std::atomic<bool> searched{false};
  std::atomic<bool> weights_due{false};  ///< run.save_weights is given and not yet written

  /// The checkpoint in `folder`, of `step`, is the newest one.
  void saved(std::int64_t step, const std::string& folder);
  /// What of the run is kept, for a sentence: "; the newest checkpoint, runs/a/step_00000500, holds
  /// every step done"; empty: nothing is known, or there is nothing to keep.
  std::string kept() const;

  /// zero_doctor finds the ranks' flight files in `folder`; empty: nowhere.
  void flights_in(const std::string& folder);
  /// What to do after a fault: "newest checkpoint: step 500; started again, the run goes on there;
  /// more: zero_doctor runs/a/flight".
  std::string next_step() const;

 private:
  mutable std::mutex mutex_;
  std::int64_t saved_step_ = -1;
  std::string folder_;
  std::string flights_;
};

}  // namespace zero
