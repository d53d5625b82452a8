// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "launch/faults/flight_reader.h"
#include "launch/faults/host_ranks.h"

namespace zero {

class Communicator;
class Device;
class FlightFile;

/// The ranks of this host, seen through their flight files, which it maps, and their processes,
/// which it holds by pidfds. Any thread may use it.
class HostPeers final : public HostRanks {
 public:
  /// `own` is the flight file of this rank. Collective over `world`, all ranks of the job.
  HostPeers(Communicator& world, Device& device, const FlightFile& own);

  /// Why the ranks of this host cannot watch each other; empty: they can. The same on all ranks of
  /// the host.
  const std::string& obstacle() const { return obstacle_; }

  /// Whether the ranks of this host are all of the job.
  bool whole_job() const { return whole_job_; }

  int count() const override { return static_cast<int>(peers_.size()); }
  int rank(int index) const override { return at(index).rank; }
  int self() const override { return self_; }
  std::int64_t changed(int index) const override;
  FlightState read(int index) const override;
  bool ended(int index) const override;
  std::optional<host::Activity> activity(int index) const override;
  const FlightReader* file(int index) const override { return at(index).file.get(); }

  /// "process 4711 is stopped"
  std::string described(int index) const;
  /// Of the pidfd of a rank's process, readable once it has ended; negative: there is none, or the
  /// rank is of this process.
  int descriptor(int index) const;
  /// Ends the rank's process, if it is another one and still runs.
  void kill(int index) const;

 private:
  struct Peer {
    int rank = 0;
    host::Process process{};
    std::unique_ptr<host::Watch> watch{};  // null: of this process
    std::unique_ptr<FlightReader> file{};
  };
  const Peer& at(int index) const { return peers_[static_cast<std::size_t>(index)]; }

  std::vector<Peer> peers_{};
  int self_ = 0;
  bool whole_job_ = false;
  std::string obstacle_{};
  mutable std::mutex reading_;  // a reader is used by one thread at a time
};

}  // namespace zero
