// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/stream.h"

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

}  // namespace zero
