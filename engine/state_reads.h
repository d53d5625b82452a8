// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/device.h"
#include "engine/state_reader.h"
#include "engine/waits.h"

namespace zero {

/// Drives the StateReader that is attached to an engine: spreads its rounds over the compute steps
/// of an optimizer step, and lets the update of a unit wait until its states have been read. Used
/// by the engine's host thread.
class StateReads {
 public:
  /// Both must outlive this.
  StateReads(Device& device, const Waits& waits) : device_(device), waits_(waits) {}

  /// Starts with round 0 of `reader` (null: none) for `units` units. Rounds of the previous
  /// reader that are not yet submitted are dropped; updates still wait for its submitted ones.
  void attach(StateReader* reader, std::size_t units);
  StateReader* reader() const { return reader_; }
  /// Whether every round is submitted.
  bool finished() const { return submitted_ == rounds_; }
  /// Submits the rounds that are due after `done` of `all` compute steps of the optimizer step.
  void advance(int done, int all);
  /// Submits all rounds that are left.
  void finish() { submit_until(rounds_); }

  /// The compute stream waits until the states of the unit have been read.
  void wait_before_update(std::size_t unit);
  /// Blocks until all submitted reads are done.
  void synchronize();
  /// Blocks until the work of all readers is done.
  void drain();

  /// StateReader::vote(), 0 without a reader.
  std::int64_t vote();
  /// StateReader::counted().
  void counted(std::int64_t sum);

  /// The cost of reading since it was last taken.
  struct Cost {
    double seconds = 0;  ///< of the host in calls of the reader, and of compute waiting for reads
    double waited = 0;   ///< the part in which the compute stream waited for other streams
  };
  Cost take_cost();
  /// Seconds of all costs together.
  double total_seconds() const { return total_seconds_; }

 private:
  template <typename Call>
  void timed(const Call& call);
  void submit_until(int round);
  void note_reads();

  Device& device_;
  const Waits& waits_;
  StateReader* reader_ = nullptr;
  bool used_ = false;  ///< a reader has been attached
  int rounds_ = 0;
  int submitted_ = 0;
  std::vector<std::vector<Event>> reads_;  ///< per unit: reads that its update waits for
  Cost cost_;
  double total_seconds_ = 0;
};

}  // namespace zero
