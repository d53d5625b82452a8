// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "launch/flight/flight_file.h"
#include "launch/rendezvous/store/connection.h"
#include "launch/rendezvous/store/server.h"
#include "launch/watch/heartbeat_link.h"
#include "tests/launch/hub_network.h"
#include "tests/launch/rank_threads.h"

namespace zero::testing {

/// Hosts that send heartbeats: the hub, "host a", with ranks 0 to 3, and others of one rank each.
/// All are this process, and one thread acts for all.
class LinkedHosts {
 public:
  static constexpr int kRanksOfHub = 4;
  using Clock = StoreConnection::Clock;

  explicit LinkedHosts(int hosts) : hosts_(static_cast<std::size_t>(hosts)) {
    std::vector<std::string> keys(kRanksOfHub, "a");
    for (int host = 1; host < hosts; ++host) keys.push_back(std::string(1, letter(host)));
    std::unique_ptr<StoreServer> server = listen();
    network_.emplace();
    std::set<int> before;
    for (int host = 0; host < hosts; ++host) {
      HeartbeatLinkParts parts{
          .hosts = RanksOfHosts(keys), .self = host, .store = options_of(host)};
      for (int each = 0; each < hosts; ++each) {
        parts.linked.push_back(each);
        parts.store_ranks.push_back(each);
        parts.names.push_back(std::string(1, letter(each)));
      }
      parts.proof = "the proof of " + std::to_string(host);
      parts.connection = std::make_unique<StoreConnection>(parts.store, soon());
      if (host == 0) parts.server = std::move(server);
      if (host != 0) expect_ok(*parts.connection, {"hello", parts.proof});
      expect_ok(*parts.connection, {"set", HeartbeatLink::key_of(host), ""});
      const std::set<int> now = network_->connections();
      std::ranges::set_difference(now, before,
                                  std::inserter(at(host).sockets, at(host).sockets.end()));
      before = now;
      at(host).link = std::make_unique<HeartbeatLink>(std::move(parts));
    }
    for (int host = 0; host < hosts; ++host) start(host);
    for (int host = 1; host < hosts; ++host) {
      wait_until([&] { return hears(0, host, 0) && hears(host, 0, 0); });
    }
  }

  LinkedHosts(const LinkedHosts&) = delete;
  LinkedHosts& operator=(const LinkedHosts&) = delete;
  ~LinkedHosts() {
    for (Host& host : hosts_) host.link.reset();
  }

  /// The options of a store's client that claims to be the host's first rank.
  StoreOptions options_of(int host) const {
    StoreOptions options = options_;
    options.rank = host;
    return options;
  }
  static Clock::time_point soon() { return Clock::now() + std::chrono::seconds(10); }

  HubNetwork& network() { return *network_; }
  /// Of the host's first connection to the hub, at both ends.
  const std::set<int>& sockets(int host) const { return hosts_.at(index(host)).sockets; }
  /// The same of all hosts but the hub.
  std::set<int> all_sockets() const {
    std::set<int> all;
    for (std::size_t i = 1; i < hosts_.size(); ++i) {
      all.insert(hosts_[i].sockets.begin(), hosts_[i].sockets.end());
    }
    return all;
  }
  /// The present connections, but that of the hub to itself.
  std::set<int> connections() const {
    std::set<int> all = network_->connections();
    for (const int own : sockets(0)) all.erase(own);
    return all;
  }

  HeartbeatLink& link(int host) { return *at(host).link; }
  /// The host's process ends.
  void end(int host) { at(host).link.reset(); }
  std::optional<PeerLoss> loss(int host, int of) { return link(host).heard(of).loss; }
  /// Whether the host has a heartbeat of the other that is younger than `time`, and it is not lost.
  bool hears(int host, int other, std::int64_t time) {
    const HeartbeatLink::Heard heard = link(host).heard(other);
    return !heard.loss && heard.heartbeat && heard.heartbeat->now > time;
  }
  /// Returns once the hub and the host hear each other's heartbeats of a later time than this.
  void wait_until_linked(int host) {
    const std::int64_t now = FlightFile::now();
    wait_until([&] { return hears(0, host, now) && hears(host, 0, now); });
  }
  void wait_until_lost(int host) {
    wait_until([&] { return loss(0, host) && loss(host, 0); });
  }

  /// What people of the host were told.
  std::vector<std::string> lines(int host) {
    const std::scoped_lock lock(mutex_);
    return at(host).lines;
  }

 private:
  struct Host {
    std::set<int> sockets{};
    std::vector<std::string> lines{};
    std::unique_ptr<HeartbeatLink> link{};
  };
  static std::size_t index(int host) { return static_cast<std::size_t>(host); }
  static char letter(int host) { return static_cast<char>('a' + host); }
  Host& at(int host) { return hosts_.at(index(host)); }

  std::unique_ptr<StoreServer> listen() {
    options_ = {.host = "127.0.0.1",
                .world = static_cast<int>(hosts_.size()),
                .job = "this run",
                .secret = JobSecret("a secret of this test alone", "the test"),
                .vanished = std::chrono::milliseconds(1900)};
    auto server = std::make_unique<StoreServer>(options_);
    options_.port = server->port();
    return server;
  }
  static void expect_ok(StoreConnection& connection, const StoreConnection::Message& request) {
    const auto reply = connection.ask(request, soon());
    ZERO_CHECK(reply.at(0) == "ok", "{}: {}", request[0], reply.back());
  }

  void start(int host) {
    const std::size_t ranks = link(host).hosts().ranks_of(host).size();
    link(host).start(
        [ranks](bool) {
          Heartbeat beat{.now = FlightFile::now()};
          beat.ranks.resize(ranks, {.changed = beat.now, .state = FlightState{}});
          return beat;
        },
        [this, host](const std::string& line) {
          const std::scoped_lock lock(mutex_);
          at(host).lines.push_back(line);
        });
  }

  StoreOptions options_{};
  std::optional<HubNetwork> network_{};
  std::mutex mutex_;  // guards lines
  std::vector<Host> hosts_;
};

}  // namespace zero::testing
