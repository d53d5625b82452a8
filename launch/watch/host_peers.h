// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/ranks_of_hosts.h"
#include "launch/flight/flight_reader.h"
#include "launch/flight/visible_ranks.h"

namespace zero {

class Communicator;
class Device;
class FlightFile;

/// The ranks of this host, seen through their flight files, which it maps, and their processes,
/// which it holds by pidfds. Any thread may use it.
class HostPeers final : public VisibleRanks {
 public:
  /// `own` is the flight file of this rank. `key` names this host: equal on its ranks, different
  /// between hosts. Empty: the kernel's boot and the PID namespace. Collective over `world`, all
  /// ranks of the job.
  HostPeers(Communicator& world, Device& device, const FlightFile& own,
            const std::string& key = "");

  /// Why the ranks of this host cannot watch each other; empty: they can. The same on all ranks of
  /// the job.
  const std::string& obstacle() const { return obstacle_of(host_); }
  const std::string& obstacle_of(int host) const {
    return obstacles_[static_cast<std::size_t>(host)];
  }

  /// All ranks of the job. Hosts have keys for names, which are not for people.
  const RanksOfHosts& hosts() const { return hosts_; }
  /// The number of this host among them.
  int host() const { return host_; }
  /// The name of a rank's host for people; empty: that rank could not say.
  const std::string& host_name_of(int rank) const { return names_[static_cast<std::size_t>(rank)]; }
  /// Whether the ranks of this host are all of the job.
  bool whole_job() const { return hosts_.hosts() == 1; }

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
    std::unique_ptr<host::BusiestThread> busiest = std::make_unique<host::BusiestThread>();
  };
  const Peer& at(int index) const { return peers_[static_cast<std::size_t>(index)]; }

  std::vector<Peer> peers_{};
  int self_ = 0;
  int host_ = 0;
  RanksOfHosts hosts_{};
  std::vector<std::string> names_{};      // of hosts, by rank
  std::vector<std::string> obstacles_{};  // by host
  mutable std::mutex reading_;            // a reader is used by one thread at a time
};

}  // namespace zero
