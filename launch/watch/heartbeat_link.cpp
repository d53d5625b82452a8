// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/heartbeat_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/system/system_error.hpp>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "base/whole_number.h"
#include "launch/rendezvous/store/connection.h"
#include "launch/rendezvous/store/server.h"
#include "launch/watch/diagnosis.h"

namespace zero {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBetweenHeartbeats{200};
/// A heartbeat in a hurry has arrived by then, or the hub is not there.
constexpr milliseconds kForArrival{300};
/// All hosts have heard the hub by then, or are not there.
constexpr milliseconds kForAll{600};
constexpr milliseconds kForGoodbyes{2000};
/// Lines that people have not been told yet; later ones are dropped.
constexpr std::size_t kMostLines = 32;
/// Heartbeats that one message asks for; they fit into it.
constexpr std::size_t kKeysAtOnce = 32;
static_assert(kKeysAtOnce * kMostHeartbeatBytes < store_wire::kLargest);

}  // namespace

std::string HeartbeatLink::key_of(int host) { return fmt::format("heartbeat/{}", host); }

HeartbeatLink::HeartbeatLink(HeartbeatLinkParts parts)
    : parts_(std::move(parts)),
      connection_(std::move(parts_.store), std::move(parts_.proof), std::move(parts_.connection),
                  {.lasts =
                       [this] {
                         const std::scoped_lock lock(mutex_);
                         return !ends_;
                       },
                   .rest = [this](milliseconds time) { return rest(time); },
                   .note = [this](PeerLoss loss) { return note_hub(loss); }},
                  std::move(parts_.others)) {
  for (std::size_t i = 0; i < parts_.linked.size(); ++i) {
    const int host = parts_.linked[i];
    if (is_hub() ? host == parts_.self : i != 0) continue;
    heard_hosts_.push_back(host);
    heard_[host];
    const std::string ranks = ranks_text(parts_.hosts.ranks_of(host));
    lost_.expect(host, fmt::format("host {} ({})", parts_.names.at(i), ranks), Clock::now());
  }
}

HeartbeatLink::~HeartbeatLink() {
  std::unique_lock lock(mutex_);
  const bool leaves = leaves_;
  if (leaves && thread_.joinable()) changed_.wait_for(lock, kForGoodbyes, [this] { return done_; });
  ends_ = true;
  done_ = done_ || !thread_.joinable();
  lock.unlock();
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (teller_.joinable()) teller_.join();
  if (leaves && parts_.server) parts_.server->wait_for_goodbyes(kForGoodbyes);
}

void HeartbeatLink::start(std::function<Heartbeat(bool)> own,
                          std::function<void(const std::string&)> warn) {
  own_ = std::move(own);
  teller_ = std::thread([this, warn = std::move(warn)] { tell_people(warn); });
  thread_ = std::thread([this] { run(); });
}

HeartbeatLink::Heard HeartbeatLink::heard(int host) const {
  const std::scoped_lock lock(mutex_);
  return heard_.at(host);
}

std::optional<HeartbeatLink::Told> HeartbeatLink::told() const {
  const std::scoped_lock lock(mutex_);
  return told_there_;
}

/// Returns when a heartbeat from here on has arrived, without the lock.
void HeartbeatLink::send_at_once(std::unique_lock<std::mutex> lock) {
  const std::uint64_t mine = ++wanted_;
  changed_.notify_all();
  changed_.wait_for(lock, kForArrival, [&] { return done_ || away_ || arrived_ >= mine; });
}

void HeartbeatLink::hurry() { send_at_once(std::unique_lock(mutex_)); }

void HeartbeatLink::tell(const Told& told) {
  std::unique_lock lock(mutex_);
  if (told_here_) return;
  told_here_ = told;
  send_at_once(std::move(lock));
  // Those that have heard so end their links.
  if (parts_.server) parts_.server->wait_for_goodbyes(kForAll);
}

void HeartbeatLink::leave() {
  std::unique_lock lock(mutex_);
  leaves_ = true;
  send_at_once(std::move(lock));
}

void HeartbeatLink::run() {
  try {
    while (exchange()) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kBetweenHeartbeats, [this] { return ends_ || wanted_ > arrived_; });
      if (ends_) break;
    }
  } catch (const std::exception& error) {
    warn(fmt::format("run.watchdog: other hosts are seen no more: {}", error.what()));
    part();
  }
  const std::scoped_lock lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

bool HeartbeatLink::exchange() {
  const int hub = parts_.linked.front();
  try {
    if (!send_own()) return false;
    // Before what the lost have said last: that has come by then.
    const auto losses = is_hub() ? find_losses() : LostHosts::Losses{};
    hear_others();
    note(losses);
    if (is_hub()) {
      warn_of_refusal();
      return true;
    }
    // The hub's word is passed on no further, and its end is no loss any more.
    const auto last = heard(hub).heartbeat;
    if (!last || !(last->leaves || last->told)) return true;
    say_goodbye();
    return false;
  } catch (const boost::system::system_error& error) {
    if (!is_hub()) return return_after(peer_loss_of(error.code()));
    // Its own server is there; another connection will do.
    std::this_thread::sleep_for(kBetweenHeartbeats);
    return true;
  }
}

/// Silence would be taken for a fault, there and here.
void HeartbeatLink::part() {
  const auto farewell = [this](int host) {
    Heartbeat last{.leaves = true};
    last.ranks.resize(parts_.hosts.ranks_of(host).size());
    return last;
  };
  try {
    for (const int host : heard_hosts_) {
      auto last = std::make_shared<const Heartbeat>(farewell(host));
      const std::scoped_lock lock(mutex_);
      heard_[host].heartbeat = std::move(last);
    }
    connection_.ask({"set", key_of(parts_.self), heartbeat_text(farewell(parts_.self))});
    say_goodbye();
  } catch (const std::exception&) {
    // Then others see a loss.
  }
}

/// Returns whether to go on.
bool HeartbeatLink::send_own() {
  std::unique_lock lock(mutex_);
  const std::uint64_t wanted = wanted_;
  const bool in_a_hurry = wanted_ > arrived_;
  lock.unlock();
  Heartbeat mine = own_(in_a_hurry);
  lock.lock();
  mine.leaves = leaves_;
  mine.told = told_here_;
  lock.unlock();
  connection_.ask({"set", key_of(parts_.self), heartbeat_text(mine)});
  if (mine.leaves) say_goodbye();
  lock.lock();
  arrived_ = wanted;
  changed_.notify_all();
  return !mine.leaves;
}

void HeartbeatLink::say_goodbye() {
  if (!is_hub()) connection_.ask({"bye"});
}

void HeartbeatLink::hear_others() {
  for (std::size_t next = 0; next < heard_hosts_.size();) {
    Message request{"get", "0"};
    const std::size_t end = std::min(heard_hosts_.size(), next + kKeysAtOnce);
    for (std::size_t i = next; i < end; ++i) request.push_back(key_of(heard_hosts_[i]));
    const Message values = connection_.ask(request);
    ZERO_CHECK(values[0] == "values" && values.size() > 1 && values.size() <= request.size() - 1,
               "the hub of the heartbeats gave {} values of {}", values.size() - 1,
               request.size() - 2);
    for (std::size_t i = 1; i < values.size(); ++i) hear(heard_hosts_[next++], values[i]);
  }
}

void HeartbeatLink::hear(int host, const std::string& text) {
  std::string& last = texts_[host];
  if (text == last) return;
  last = text;
  lost_.hear(host, Clock::now());
  try {
    const auto heartbeat = std::make_shared<const Heartbeat>(
        read_heartbeat(text, parts_.hosts.ranks_of(host), parts_.hosts.ranks()));
    if (heartbeat->leaves) lost_.leave(host);
    const std::scoped_lock lock(mutex_);
    heard_[host].heartbeat = heartbeat;
    if (heartbeat->told && !told_here_) told_there_ = heartbeat->told;
    if (is_hub() && !told_here_) told_here_ = told_there_;
  } catch (const Error& error) {
    if (std::exchange(warned_, true)) return;
    warn(fmt::format("run.watchdog: rank {}, the first of its host, sent {}",
                     parts_.hosts.first_rank(host), error.what()));
  }
}

LostHosts::Losses HeartbeatLink::find_losses() {
  LostHosts::Losses losses;
  const Message reply = connection_.ask({"lost?"});
  for (std::size_t i = 3; i < reply.size(); i += 2) {
    const auto rank = whole_number(reply[i - 1], 0, store_wire::kMostRanks);
    const auto at = std::ranges::find(parts_.store_ranks, rank.value_or(-1));
    if (at == parts_.store_ranks.end()) continue;  // it came to the store, but got no link
    losses[parts_.linked[static_cast<std::size_t>(at - parts_.store_ranks.begin())]] =
        reply[i] == "ended"   ? PeerLoss::ended
        : reply[i] == "reset" ? PeerLoss::reset
                              : PeerLoss::unreachable;
  }
  return losses;
}

/// These connections are lost at present.
void HeartbeatLink::note(const LostHosts::Losses& losses) {
  const std::vector<std::string> lines = lost_.note(losses, Clock::now());
  {
    const std::scoped_lock lock(mutex_);
    for (const int host : heard_hosts_) heard_[host].loss = lost_.loss_of(host);
  }
  for (const std::string& line : lines) warn(line);
}

/// This host's connection was lost. Returns whether it is there again; if not, the hub's process or
/// this link has ended.
bool HeartbeatLink::return_after(PeerLoss loss) {
  if (!connection_.return_after(loss)) return false;
  note({});
  const std::scoped_lock lock(mutex_);
  if (std::exchange(away_, false)) ++wanted_;  // what ranks do is due at once
  return true;
}

/// As HubConnection::Link has it.
bool HeartbeatLink::note_hub(PeerLoss loss) {
  const int hub = parts_.linked.front();
  note({{hub, loss}});
  const std::optional<PeerLoss> believed = lost_.loss_of(hub);
  if (believed == PeerLoss::ended) return false;
  const std::scoped_lock lock(mutex_);
  away_ = believed.has_value();
  changed_.notify_all();
  return true;
}

/// Returns whether the link goes on then.
bool HeartbeatLink::rest(milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [this] { return ends_ || leaves_; });
  return !ends_ && !leaves_;
}

void HeartbeatLink::warn_of_refusal() {
  const auto refusal = refused_ ? std::nullopt : parts_.server->first_refusal();
  if (!refusal) return;
  refused_ = true;
  warn(fmt::format(
      "run.watchdog: a process that knows this job's secret was refused as a host's first rank: {}",
      printable_line(refusal->substr(0, refusal->find(';')))));
}

void HeartbeatLink::warn(std::string line) {
  const std::scoped_lock lock(mutex_);
  if (lines_.size() < kMostLines) lines_.push_back(std::move(line));
  changed_.notify_all();
}

void HeartbeatLink::tell_people(const std::function<void(const std::string&)>& warn) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return done_ || !lines_.empty(); });
    if (lines_.empty()) return;
    const std::string line = std::move(lines_.front());
    lines_.pop_front();
    lock.unlock();
    if (warn) warn(line);
    lock.lock();
  }
}

}  // namespace zero
