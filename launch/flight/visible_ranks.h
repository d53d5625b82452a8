// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/host/process.h"
#include "launch/flight/flight_state.h"

namespace zero {

class FlightReader;

/// The ranks that a watchdog sees, by index: those of its host first, each host's in order of ranks
/// of the world. This rank is one of them.
class VisibleRanks {
 public:
  virtual ~VisibleRanks() = default;
  VisibleRanks() = default;
  VisibleRanks(const VisibleRanks&) = delete;
  VisibleRanks& operator=(const VisibleRanks&) = delete;

  virtual int count() const = 0;
  /// Of the world.
  virtual int rank(int index) const = 0;
  /// The index of this rank.
  virtual int self() const = 0;

  /// When the rank last published anything, by a clock of its host: a look at memory, no more.
  virtual std::int64_t changed(int index) const = 0;
  /// Also of a rank that has ended.
  virtual FlightState read(int index) const = 0;
  std::vector<FlightState> read_all() const {
    std::vector<FlightState> all;
    for (int i = 0; i < count(); ++i) all.push_back(read(i));
    return all;
  }
  /// Whether the rank's process has ended. Ranks that are threads of this process have not.
  virtual bool ended(int index) const = 0;
  /// Its flight file as this process maps it, for what any thread may ask of it; null: none.
  virtual const FlightReader* file(int /*index*/) const { return nullptr; }
  /// What the rank's process does, by /proc; nothing if that does not tell.
  virtual std::optional<host::Activity> activity(int index) const = 0;

  // Where ranks of other hosts are seen, by what the first rank of each says.

  /// The rank's host, as a number.
  virtual int host_of(int) const { return 0; }
  /// Whether that host has said nothing for a while. Then nothing is known of its ranks but that
  /// the first, which speaks for it, seems to be stopped.
  virtual bool is_silent(int) const { return false; }
  /// Whether that host's system answers no more, by the network of the heartbeats, or somebody
  /// between has cut its connection and it has not come back: it, or its network, has failed. Then
  /// it is silent too.
  virtual bool is_cut_off(int) const { return false; }
  /// Whether this rank tells of faults that no host finds alone.
  virtual bool decides_for_all() const { return true; }
};

}  // namespace zero
