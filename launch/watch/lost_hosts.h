// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/rendezvous/store/endpoint.h"

namespace zero {

/// Hosts that should send heartbeats: how their connections are lost, and what people are told of
/// those that may come back. Has no clock of its own. Not thread-safe.
class LostHosts {
 public:
  using Clock = std::chrono::steady_clock;
  /// By host.
  using Losses = std::map<int, PeerLoss>;

  /// People hear nothing of a host that is back within this time.
  static constexpr std::chrono::milliseconds kUnsaid{1000};

  /// From `now` on heartbeats of the host are expected. `name`: for people.
  void expect(int host, std::string name, Clock::time_point now);
  /// A heartbeat of the host has come.
  void hear(int host, Clock::time_point now);
  /// The host has left in good order: people are told of no loss of it.
  void leave(int host);
  /// The connections that are lost at `now`. Returns lines for people: one when hosts have been
  /// missing for kUnsaid, and one when they are back. Of a host whose process has ended others
  /// tell.
  std::vector<std::string> note(const Losses& losses, Clock::time_point now);
  /// How the host is lost; nothing: it is not. A host is back once its connection is, and a
  /// heartbeat has come by it.
  std::optional<PeerLoss> loss_of(int host) const { return hosts_.at(host).loss; }

 private:
  struct Host {
    std::string name{};
    Clock::time_point heard{};
    bool left = false;
    std::optional<PeerLoss> loss{};
    std::optional<Clock::time_point> missing{};  // the last heartbeat before the loss
    bool said = false;                           // people know that it is missing
  };

  std::map<int, Host> hosts_{};
};

}  // namespace zero
