// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/host_peers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/host.h"
#include "base/message_text.h"
#include "collectives/agreement.h"
#include "collectives/communicator.h"
#include "collectives/host_values.h"
#include "launch/flight/flight_file.h"

namespace zero {
namespace {

/// The kernel's boot and the PID namespace: equal for ranks that see each other's processes.
std::string this_host() {
  const std::string boot = boot_id();
  return (boot.empty() ? host_name() : boot) + " " + host::process_namespace();
}

/// What a rank says of itself.
nlohmann::json introduction(const FlightFile& own, const std::string& key) {
  const host::Process self = host::this_process();
  return {{"host", key.empty() ? this_host() : key},
          {"name", printable_line(host_name())},
          {"process", self.id},
          {"start", self.start},
          {"file", own.address()}};
}

}  // namespace

HostPeers::HostPeers(Communicator& world, Device& device, const FlightFile& own,
                     const std::string& key) {
  std::string mine;
  std::string failure = failure_of([&] { mine = introduction(own, key).dump(); });
  std::vector<nlohmann::json> said;  // null: the rank cannot say
  std::vector<std::string> keys;     // of hosts; a rank that cannot say is alone
  for (const std::string& text : all_gather_texts(world, device, mine, "watchdog")) {
    const auto& one =
        said.emplace_back(text.empty() ? nlohmann::json{} : nlohmann::json::parse(text));
    keys.push_back(one.is_null() ? fmt::format("rank {}", keys.size()) : one.at("host").dump());
    names_.push_back(one.is_null() ? "" : one.at("name").get<std::string>());
  }
  hosts_ = RanksOfHosts(keys);
  host_ = hosts_.host_of(world.rank());
  for (const int rank : hosts_.ranks_of(host_)) {
    const nlohmann::json& peer = said[static_cast<std::size_t>(rank)];
    if (!failure.empty()) continue;
    const std::string cannot = failure_of([&] {
      const host::Process process{peer.at("process").get<int>(),
                                  peer.at("start").get<std::uint64_t>()};
      if (rank == world.rank()) self_ = count();
      peers_.push_back(
          {.rank = rank,
           .process = process,
           .watch = process.id == ::getpid() ? nullptr : std::make_unique<host::Watch>(process),
           .file = std::make_unique<FlightReader>(peer.at("file").get<std::string>())});
      // Another container may have an earlier run's file under that name.
      const FlightState found = peers_.back().file->read();
      ZERO_CHECK(found.rank == rank && found.process == process.id,
                 "{} is the flight file of rank {}, process {}, expected process {}: ranks that "
                 "see each other's processes see other files",
                 peers_.back().file->path(), found.rank, found.process, process.id);
      // Behind the pidfd: the number may be another's by now. Or that of another host, if both were
      // started from one snapshot and have one boot ID.
      ZERO_CHECK(!host::ended(process), "process {} of this host is not there", process.id);
    });
    if (!cannot.empty())
      failure = fmt::format("rank {} by rank {}: {}", rank, world.rank(), cannot);
  }
  // Ranks of a host watch each other, or none does: else two might tell of one fault.
  const auto failures = all_gather_texts(world, device, failure, "watchdog");
  obstacles_.resize(static_cast<std::size_t>(hosts_.hosts()));
  for (int rank = 0; rank < world.size(); ++rank) {
    std::string& obstacle = obstacles_[static_cast<std::size_t>(hosts_.host_of(rank))];
    if (obstacle.empty()) obstacle = failures[static_cast<std::size_t>(rank)];
  }
}

std::int64_t HostPeers::changed(int index) const {
  const std::scoped_lock lock(reading_);
  return at(index).file->changed();
}

FlightState HostPeers::read(int index) const {
  const std::scoped_lock lock(reading_);
  return at(index).file->read();
}

bool HostPeers::ended(int index) const { return at(index).watch && at(index).watch->ended(); }

std::optional<host::Activity> HostPeers::activity(int index) const {
  return host::activity(at(index).process, at(index).busiest.get());
}

std::string HostPeers::described(int index) const { return host::described(at(index).process); }

int HostPeers::descriptor(int index) const {
  return at(index).watch ? at(index).watch->descriptor() : -1;
}

void HostPeers::kill(int index) const {
  if (at(index).watch) at(index).watch->kill();
}

}  // namespace zero
