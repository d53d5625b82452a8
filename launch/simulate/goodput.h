// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace zero {

/// A job that saves at intervals and goes on from its last checkpoint after a failure. Failures
/// come at a constant rate, also while it saves and restarts.
struct Failures {
  double between = 0;  ///< mean seconds between failures of the job
  double save = 0;     ///< seconds that a checkpoint holds training up
  double restart = 0;  ///< seconds from a failure to training again

  /// The share of time that is training which is kept, with `interval` seconds of training between
  /// checkpoints: interval / expected time (Daly 2006, equation 13's first form).
  double goodput(double interval) const;
  /// The interval of the greatest goodput. With save = 0 every interval loses: 0.
  double best_interval() const;
};

}  // namespace zero
