// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/hub_connection.h"

#include <algorithm>
#include <boost/system/system_error.hpp>
#include <cstddef>
#include <utility>

#include "base/error.h"
#include "launch/rendezvous/store/connection.h"
#include "launch/watch/lost_hosts.h"

namespace zero {
namespace {

using std::chrono::milliseconds;

/// Between attempts at all addresses, each twice the one before, and for an attempt at one.
constexpr milliseconds kFirstPause{200};
constexpr milliseconds kLongestPause{2000};
constexpr milliseconds kForAttempt{2000};
/// For one at once, behind an end or a reset.
constexpr milliseconds kForFirstAttempt{300};
/// A connection that is lost within this time is not tried again at once.
constexpr milliseconds kLasting{1000};

}  // namespace

HubConnection::HubConnection(StoreOptions options, std::string proof,
                             std::unique_ptr<StoreConnection> connection, Link link,
                             std::vector<std::string> others)
    : options_(std::move(options)),
      addresses_(std::move(others)),
      proof_(std::move(proof)),
      link_(std::move(link)),
      connection_(std::move(connection)) {
  std::erase(addresses_, options_.host);
  addresses_.insert(addresses_.begin(), options_.host);
}

HubConnection::~HubConnection() = default;

HubConnection::Message HubConnection::ask(const Message& request) {
  try {
    if (!connection_) {
      connection_ = std::make_unique<StoreConnection>(options_, Clock::now() + kForAttempt);
    }
    Message reply = connection_->ask(request, link_.lasts);
    ZERO_CHECK(reply.at(0) != "refused", "the hub of the heartbeats refuses {}: {}", request[0],
               reply.back());
    return reply;
  } catch (const boost::system::system_error&) {
    connection_.reset();
    throw;
  }
}

bool HubConnection::return_after(PeerLoss loss) {
  if (loss != PeerLoss::unreachable) {
    const auto still = return_at_once(loss);
    if (!still) return true;
    loss = *still;
  }
  // An address may be gone while the hub is there: a temporary one, or that of an interface which
  // has failed.
  milliseconds pause = kFirstPause;
  for (std::size_t i = 0; link_.rest(milliseconds(0)) && link_.note(loss);
       i = (i + 1) % addresses_.size()) {
    if (i == 0) {
      if (!link_.rest(pause)) break;
      pause = std::min(2 * pause, kLongestPause);
    }
    options_.host = addresses_[i];
    // A hub that does not listen by now may have left in good order: this host would not have heard
    // so, and takes it for no death.
    if (!connect(kForAttempt)) {
      std::swap(addresses_[i], addresses_.front());
      return true;
    }
  }
  return false;
}

/// Returns how the connection is lost still; nothing: it is there.
std::optional<PeerLoss> HubConnection::return_at_once(PeerLoss loss) {
  if (Clock::now() - connected_ <= kLasting && !link_.rest(kFirstPause)) return PeerLoss::reset;
  auto still = connect(kForFirstAttempt);
  // What has reset the connection may refuse others for as long as it likes.
  if (still && loss == PeerLoss::reset) return PeerLoss::reset;
  const bool nobody_listens = still == PeerLoss::ended;
  if (nobody_listens && link_.note(*still) && link_.rest(LostHosts::kBeforeBelief)) {
    still = connect(kForFirstAttempt);
  }
  return still == PeerLoss::unreachable ? PeerLoss::reset : still;
}

/// Returns how the connection is lost still; nothing: it is there.
std::optional<PeerLoss> HubConnection::connect(milliseconds patience) {
  const auto goes_on = [this, end = Clock::now() + patience] {
    return link_.rest(milliseconds(0)) && Clock::now() < end;
  };
  try {
    auto connection = std::make_unique<StoreConnection>(options_, goes_on);
    // As long as the link lasts: if the connection ended behind a hello that the hub has heard, the
    // hub would take this process for dead.
    const Message reply = connection->ask({"hello", proof_}, link_.lasts);
    if (reply.at(0) != "ok") return PeerLoss::reset;
    connection_ = std::move(connection);
    connected_ = Clock::now();
    return std::nullopt;
  } catch (const boost::system::system_error& error) {
    const bool nobody = error.code() == boost::system::errc::connection_refused;
    return nobody ? PeerLoss::ended : PeerLoss::unreachable;
  } catch (const Error&) {
    return PeerLoss::reset;  // another program, or another run, has the port
  }
}

}  // namespace zero
