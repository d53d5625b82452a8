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

/// Hosts that should send heartbeats: which of their losses are believed, and what people are told
/// of those that may come back. Has no clock of its own. Used by one thread at a time.
class LostHosts {
 public:
  using Clock = std::chrono::steady_clock;
  /// By host.
  using Losses = std::map<int, PeerLoss>;

  /// People hear nothing of a host that is back within this time.
  static constexpr std::chrono::milliseconds kUnsaid{1000};

  /// A process has ended if its connection did and there has been no other for so long: what is
  /// between the hosts may end a connection, and refuse others for a moment.
  static constexpr std::chrono::milliseconds kBeforeBelief{400};

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
  /// How the host is lost; nothing: it is not. An end means a death, and is believed once it has
  /// been noted for kBeforeBelief. Another loss blames nobody, since JobRanks counts the silence
  /// behind it, and is believed at once. A host is back once a heartbeat has come by its new
  /// connection.
  std::optional<PeerLoss> loss_of(int host) const { return hosts_.at(host).loss; }

 private:
  struct Host {
    /// Of a loss that is noted at `now`, or of none, what is believed.
    std::optional<PeerLoss> believed(std::optional<PeerLoss> noted, Clock::time_point now);

    std::string name{};
    Clock::time_point heard{};
    bool left = false;
    std::optional<PeerLoss> loss{};
    std::optional<Clock::time_point> ended{};    // when its connection was first noted to have
    std::optional<Clock::time_point> missing{};  // the last heartbeat before the loss
    bool said = false;                           // people know that it is missing
  };

  std::map<int, Host> hosts_{};
};

}  // namespace zero
