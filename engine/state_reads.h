// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/device.h"
#include "device/stream.h"
#include "engine/waits.h"

namespace zero {

/// Work that reads the model states while training goes on, such as a checkpoint being saved. The
/// states do not change between two updates, so the engine spreads the rounds of an attached reader
/// (EngineStates::attach) over the compute steps of the next optimizer step, at the same points of
/// the schedule on every rank, and the update of each unit waits until its states have been read.
/// Work that a reader submits must not fail: its stream would, and with it the engine. An engine
/// that ends (Engine::lifetime) calls its reader no more: rounds that were not submitted never are.
class StateReader {
 public:
  virtual ~StateReader() = default;
  StateReader() = default;
  StateReader(const StateReader&) = delete;
  StateReader& operator=(const StateReader&) = delete;

  /// Rounds of reading; equal on all ranks.
  virtual int rounds() const = 0;
  /// Submits round `round`, from 0: each once, in order, on the host thread of the engine. May
  /// submit to the compute, communication and transfer streams; states are read by work of compute
  /// and transfer only (EngineStates::copy). Work submitted to the transfer stream runs behind all
  /// compute work submitted before attach(). An error fails the engine.
  virtual void submit(int round) = 0;
  /// The point after the last read of the states of unit `unit`. Asked for once, when all rounds
  /// are submitted.
  virtual Event read(int unit) = 0;
  /// This rank's addend to a sum over all ranks, asked for in every step() while attached.
  virtual std::int64_t vote() = 0;
  /// The sum of the votes, equal on all ranks (0 on a planning device), at the end of step(),
  /// unless its update was skipped: states whose next step is not finite may have diverged. May run
  /// collectives, which are not counted as traffic of a step, and may attach or detach a reader. If
  /// an error is thrown, step(), which is done, throws the same; the engine can go on.
  virtual void counted(std::int64_t sum) = 0;

  /// Called by EngineStates::attach() on all ranks before another reader, or none, takes the place
  /// of this one. May run collectives, to end what this reader has begun. An error is that of
  /// attach(), and this reader stays.
  virtual void replaced() {}
};

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
