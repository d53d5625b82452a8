// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/host/process.h"
#include "launch/faults/flight_state.h"

namespace zero {

class FlightReader;

/// The ranks of one host as its watchdogs see them, by index: in order of ranks of the world. This
/// rank is one of them.
class HostRanks {
 public:
  virtual ~HostRanks() = default;
  HostRanks() = default;
  HostRanks(const HostRanks&) = delete;
  HostRanks& operator=(const HostRanks&) = delete;

  virtual int count() const = 0;
  /// Of the world.
  virtual int rank(int index) const = 0;
  /// The index of this rank.
  virtual int self() const = 0;

  /// When the rank last published anything: a look at mapped memory, no more.
  virtual std::int64_t changed(int index) const = 0;
  /// Also of a rank that has ended.
  virtual FlightState read(int index) const = 0;
  /// Whether the rank's process has ended. Ranks that are threads of this process have not.
  virtual bool ended(int index) const = 0;
  /// Its flight file as this process maps it, for what any thread may ask of it; null: none.
  virtual const FlightReader* file(int /*index*/) const { return nullptr; }
  /// What the rank's process does, by /proc; nothing if that does not tell.
  virtual std::optional<host::Activity> activity(int index) const = 0;
};

}  // namespace zero
