// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/ranks_of_hosts.h"
#include "launch/rendezvous/store/endpoint.h"
#include "launch/watch/heartbeat.h"
#include "launch/watch/hub_connection.h"
#include "launch/watch/lost_hosts.h"

namespace zero {

class StoreConnection;
class StoreServer;

/// What the first rank of a host brings to its link.
struct HeartbeatLinkParts {
  RanksOfHosts hosts{};              ///< of the whole job
  std::vector<int> linked{};         ///< the hosts that have links, ascending; the first is the hub
  std::vector<int> store_ranks{};    ///< of the linked hosts, in their store
  std::vector<std::string> names{};  ///< of the linked hosts, for people
  int self = 0;                      ///< this host
  StoreOptions store{};              ///< its host is an address: no name is looked up later
  std::vector<std::string> others{};  ///< the hub's other addresses, for a link that is lost
  std::string proof{};                ///< of this host's place in the store, which it alone knows
  std::unique_ptr<StoreServer> server{};          ///< the hub's
  std::unique_ptr<StoreConnection> connection{};  ///< has said hello, unless it is the hub's
};

/// The first rank's link to the first ranks of other hosts: a thread that exchanges heartbeats five
/// times a second through a store of their own, which the first host, the hub, keeps. The hub hears
/// all hosts, the others hear the hub, so that the cost grows with the hosts. A connection that
/// ends without a goodbye is a loss; a host that says nothing while its connection lasts is silent.
/// A host whose system answers no more, or whose connection was reset, may be there: from its end
/// it connects again and again, and is no longer lost once it has (HubConnection, LostHosts).
///
/// One thread makes it, starts it and, once no other uses it, ends it; any thread may call its
/// other functions. No thread holds the mutex while it waits for the hub or calls what it was
/// given.
class HeartbeatLink {
 public:
  using Told = Heartbeat::Told;
  /// A host as it was heard last.
  struct Heard {
    std::shared_ptr<const Heartbeat> heartbeat{};  ///< null: none yet
    std::optional<PeerLoss> loss{};
  };

  /// Of a host's heartbeat in the store; the value is set, and empty before the first.
  static std::string key_of(int host);

  explicit HeartbeatLink(HeartbeatLinkParts parts);
  /// Says goodbye if this rank has left, and waits a little for those who have not heard so.
  /// Otherwise the others see a loss.
  ~HeartbeatLink();
  HeartbeatLink(const HeartbeatLink&) = delete;
  HeartbeatLink& operator=(const HeartbeatLink&) = delete;

  /// Begins. `own` gives this host's heartbeat; of one in a hurry, with all that is known. `warn`
  /// tells people that something is wrong with the link, or is well again. Each is called on a
  /// thread of its own: the one that tells may have to wait for a reader. If `own` throws, or the
  /// hub refuses a request, the link ends as if all hosts had left in good order.
  void start(std::function<Heartbeat(bool in_a_hurry)> own,
             std::function<void(const std::string&)> warn);

  /// All of the job.
  const RanksOfHosts& hosts() const { return parts_.hosts; }
  /// The number of this one.
  int host() const { return parts_.self; }
  /// The hosts that are heard: of the hub all others that have links, else the hub.
  const std::vector<int>& heard_hosts() const { return heard_hosts_; }
  bool is_hub() const { return parts_.server != nullptr; }
  Heard heard(int host) const;
  /// The rank of another host that has told of a fault; nothing: none has.
  std::optional<Told> told() const;

  // While this host's link is lost, these return at once.
  /// Sends a heartbeat at once; returns when it has arrived at the hub, or soon.
  void hurry();
  /// Lets the others know that people have been told; returns when the hub knows, of the hub when
  /// the others know, or soon.
  void tell(const Told& told);
  /// This rank ends in good order.
  void leave();

 private:
  using Clock = std::chrono::steady_clock;
  using Message = HubConnection::Message;

  // Of the link's thread.
  void run();
  bool exchange();
  bool send_own();
  void hear_others();
  void hear(int host, const std::string& text);
  LostHosts::Losses find_losses();
  void note(const LostHosts::Losses& losses);
  bool return_after(PeerLoss loss);
  bool note_hub(PeerLoss loss);
  bool rest(std::chrono::milliseconds time);
  void warn_of_refusal();
  void warn(std::string line);
  void say_goodbye();
  void part();
  // Of the teller's.
  void tell_people(const std::function<void(const std::string&)>& warn);
  // Of any.
  void send_at_once(std::unique_lock<std::mutex> lock);

  // Fixed once it has started; the server's functions that are called here are for any thread.
  HeartbeatLinkParts parts_;
  std::vector<int> heard_hosts_{};
  std::function<Heartbeat(bool)> own_{};
  // Of the link's thread, once it has started.
  HubConnection connection_;
  std::map<int, std::string> texts_{};  // the last of each host
  LostHosts lost_{};
  bool warned_ = false;   // of a host's heartbeat
  bool refused_ = false;  // people know that the hub has refused a connection

  mutable std::mutex mutex_;  // guards the following
  std::condition_variable changed_;
  std::map<int, Heard> heard_{};
  std::optional<Told> told_here_{};   // by this host, or by another that this one passes on
  std::optional<Told> told_there_{};  // by another host
  bool leaves_ = false;
  bool ends_ = false;
  bool away_ = false;                // this host's link is lost
  bool done_ = false;                // the thread exchanges no more
  std::deque<std::string> lines_{};  // that people are to be told
  std::uint64_t wanted_ = 0;         // heartbeats asked for in a hurry
  std::uint64_t arrived_ = 0;        // of them, those that the hub has
  std::thread teller_{};
  std::thread thread_{};  // last: both use all other members
};

}  // namespace zero
