// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/listener.h"
#include "launch/faults/fault_injector.h"
#include "launch/flight/flight_file.h"
#include "launch/flight/flight_recorder.h"
#include "launch/watch/watchdog.h"

namespace zero {

class Mesh;

/// What notices the faults of a rank's run: its flight recorder, whose file others read, a
/// watchdog, and the faults that the run is made to meet. Must outlive the run's device, and what
/// computes there.
class RunFaults {
 public:
  /// Watches from here on. `ranks` is the communicator through which the ranks met. `watchdog`:
  /// nothing, of no rank: none; one rank alone has none either. `injector` may be null. Collective.
  RunFaults(Communicator& ranks, FlightFile file, std::optional<WatchdogOptions> watchdog,
            std::unique_ptr<FaultInjector> injector = nullptr);
  RunFaults(const RunFaults&) = delete;
  RunFaults& operator=(const RunFaults&) = delete;

  /// Records from here on what this rank calls of `ranks`, which flight files name `group`: "hosts"
  /// where collectives between devices have a communicator of their own, else "world". All ranks
  /// count from the same collective. The run is in "start", as its phase listeners are told.
  void begin(const std::string& group);

  /// For people; empty: nothing to say.
  const std::string& warning() const { return warning_; }

  /// Null: the run is made to meet no fault.
  FaultInjector* injector() { return injector_.get(); }
  /// Lets the watchdog look at the threads of the device's streams.
  void attach_to(Device& device);
  /// Names the groups of the mesh, and records their collectives from here on. May be called again,
  /// if the same world is laid out anew. Behind begin().
  void record(const Mesh& mesh, Communicator& world);

  /// Of the run's units or phases: `Listener` is UnitListener or PhaseListener.
  template <typename Listener>
  std::vector<Listener*> listeners() {
    std::vector<Listener*> all{&recorder_};
    if (injector_) all.push_back(injector_.get());
    return all;
  }

  /// The rank ends in good order, and its flight file with it.
  void end_well() noexcept;
  /// The rank ends in good order, by an error that all ranks know of: its flight file stays and
  /// has the message, for zero_doctor. Before the first step nothing has begun that it could tell
  /// of, and what one user leaves in a shared folder may keep another out: it goes.
  void failed_alike(std::string_view message) noexcept;
  /// This rank fails by an error that it is about to tell of: returns the message as people are to
  /// be told of it (Watchdog::in_full()). Does not return if the watchdog tells of a fault instead,
  /// or another rank of the same, and the watchdog ends the process. keep_files() is to follow.
  std::string failing(const std::exception& error);

  // For the thread that answers signals.
  /// Watchdog::waits(); empty: there is none.
  std::string waits() const { return watchdog_ ? watchdog_->waits() : ""; }
  /// Whether the watchdog is about to end the process, because another rank has died.
  bool takes_over() const;
  /// The process ends at once, because of a signal: SIGINT, SIGTERM or SIGPIPE. Others tell of it
  /// unless this rank has. keep_files() is to follow.
  enum class Told : std::uint8_t { by_this_rank, by_others };
  void ended_by(int signal, Told told) noexcept;

  /// Copies the flight file, and those of ranks of this host that died, to their places, if they
  /// lie elsewhere: the process is about to end. Any thread.
  void keep_files() const noexcept;

 private:
  Communicator& ranks_;
  FlightFile file_;
  FlightRecorder recorder_;
  std::unique_ptr<FaultInjector> injector_;
  std::string warning_{};
  std::optional<Listening> listening_{};
  std::optional<Listening> of_devices_{};  // nothing: collectives of ranks_ are the mesh's
  std::unique_ptr<Watchdog> watchdog_{};   // null: none; ends first
};

}  // namespace zero
