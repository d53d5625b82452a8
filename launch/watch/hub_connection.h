// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/rendezvous/store/endpoint.h"

namespace zero {

class StoreConnection;

/// A host's connection to the store in which the hosts of a job leave their heartbeats. Once it is
/// lost, this end makes it again, and proves that it is the process that had the host's place. All
/// calls block. Used by one thread, on which it calls its link too.
class HubConnection {
 public:
  using Message = std::vector<std::string>;
  /// What the connection asks of the link that it serves.
  struct Link {
    /// Whether the link has not ended. Once it has, no request and no hello waits for its answer.
    std::function<bool()> lasts{};
    /// Waits for so long, or until the link ends or its rank leaves. Returns whether it goes on:
    /// only then is the connection tried again.
    std::function<bool(std::chrono::milliseconds)> rest{};
    /// The connection is lost like this, still or at first. Returns whether the hub may be there:
    /// if not, there is no further attempt.
    std::function<bool(PeerLoss)> note{};
  };

  /// `options`: their host is an address; no name is looked up. `proof` and `others`, addresses of
  /// the hub: as HeartbeatLinkParts has them. `connection` has said hello, unless it is the hub's
  /// own.
  HubConnection(StoreOptions options, std::string proof,
                std::unique_ptr<StoreConnection> connection, Link link,
                std::vector<std::string> others = {});
  ~HubConnection();
  HubConnection(const HubConnection&) = delete;
  HubConnection& operator=(const HubConnection&) = delete;

  /// Throws boost::system::system_error if the connection is lost, and zero::Error if the hub
  /// refuses the request. Makes a connection that was lost again, without a hello: the hub, which
  /// says none on its own, asks then, and others call return_after() first.
  Message ask(const Message& request);
  /// Of a connection that was lost like this: tries at once behind an end or a reset, and then less
  /// and less often, every 2 s at last, at all addresses in turn, the last good one first. Behind
  /// an end at which nobody listens there is a second attempt LostHosts::kBeforeBelief later, and
  /// if nobody listens then, the hub has ended. Returns whether the connection is there again; if
  /// not, the link or the hub has ended.
  bool return_after(PeerLoss loss);

 private:
  using Clock = std::chrono::steady_clock;

  std::optional<PeerLoss> return_at_once(PeerLoss loss);
  std::optional<PeerLoss> connect(std::chrono::milliseconds patience);

  StoreOptions options_;                // their host is the address in use
  std::vector<std::string> addresses_;  // of the hub; the one at which it was last is the first
  std::string proof_;
  Link link_;
  std::unique_ptr<StoreConnection> connection_;  // null: it is lost
  Clock::time_point connected_{};                // again
};

}  // namespace zero
