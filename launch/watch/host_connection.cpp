// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/host_connection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <boost/asio.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/host.h"
#include "base/message_text.h"
#include "base/random_hex.h"
#include "collectives/agreement.h"
#include "collectives/communicator.h"
#include "collectives/host_values.h"
#include "launch/rendezvous/host_addresses.h"
#include "launch/rendezvous/start.h"
#include "launch/rendezvous/store/connection.h"
#include "launch/rendezvous/store/server.h"
#include "launch/watch/host_peers.h"

namespace zero {
namespace {

using std::chrono::milliseconds;
using Clock = StoreConnection::Clock;

/// A host that has vanished is lost well within three seconds.
constexpr milliseconds kVanished{1900};
constexpr milliseconds kForAddress{2000};
constexpr milliseconds kForAddresses{8000};
constexpr std::size_t kSecretDigits = 64;
constexpr std::size_t kRunDigits = 16;
constexpr std::string_view kSecretsName = "the watchdogs' secret";
constexpr std::size_t kMostNamed = 4;

/// What all ranks know of a host, by its first rank.
struct Member {
  int host = 0;
  std::string name{};  ///< for people
  bool has_secret = false;
  std::string failure{};  ///< why it has no link
};

/// Where the first host listens.
struct Hub {
  int port = 0;
  std::vector<std::string> addresses{};
  std::string boot{};
  std::string run{};  ///< other runs may have the same secret
  std::optional<JobSecret> secret{};
};

/// The addresses at which other hosts may find this one.
std::vector<std::string> own_addresses() {
  std::vector<std::string> texts;
  for (const HostAddress& each : host_addresses(process_environment())) {
    texts.push_back(each.address);
  }
  if (texts.empty()) texts.push_back(host_name());
  return texts;
}

/// Whether it is no address, but what the name service knows.
bool is_name(const std::string& text) {
  boost::system::error_code no_address;
  static_cast<void>(boost::asio::ip::make_address(text, no_address));
  return no_address.failed();
}

/// Bits that two addresses begin with together; -1: they are of two families, or none.
int alike(const std::string& left, const std::string& right) {
  boost::system::error_code no_left;
  boost::system::error_code no_right;
  const auto one = boost::asio::ip::make_address(left, no_left);
  const auto other = boost::asio::ip::make_address(right, no_right);
  if (no_left || no_right || one.is_v4() != other.is_v4()) return -1;
  const auto bits = [](const auto& first, const auto& second) {
    const auto [mine, others] = std::ranges::mismatch(first, second);
    const auto equal = 8 * static_cast<int>(mine - first.begin());
    if (mine == first.end()) return equal;
    return equal + std::countl_zero(static_cast<unsigned char>(*mine ^ *others));
  };
  return one.is_v4() ? bits(one.to_v4().to_bytes(), other.to_v4().to_bytes())
                     : bits(one.to_v6().to_bytes(), other.to_v6().to_bytes());
}

/// The hub's addresses in the order in which this host tries them.
std::vector<std::string> in_order(const Hub& hub) {
  const std::vector<std::string> own = own_addresses();
  const auto likeness = [&own](const std::string& address) {
    int most = -1;
    for (const std::string& mine : own) most = std::max(most, alike(address, mine));
    return -most;
  };
  std::vector<std::string> addresses = hub.addresses;
  std::ranges::stable_sort(addresses, {}, likeness);
  if (hub.boot == boot_id()) addresses.emplace_back("127.0.0.1");
  return addresses;
}

StoreOptions store_options(const Hub& hub, std::size_t members, std::size_t self) {
  return {.host = "127.0.0.1",  // where the hub itself connects
          .port = hub.port,
          .rank = static_cast<int>(self),
          .world = static_cast<int>(members),
          .job = "watchdog " + hub.run,
          .secret = hub.secret,
          .vanished = kVanished};
}

/// A connection to the hub, at one of these addresses, that has said hello; `options` have its
/// address. Throws zero::Error that names all.
std::unique_ptr<StoreConnection> reach(const std::vector<std::string>& addresses,
                                       const std::string& proof, StoreOptions& options,
                                       milliseconds patience) {
  const Clock::time_point end = Clock::now() + patience;
  std::vector<std::string> failures;
  for (const std::string& address : addresses) {
    options.host = address;
    try {
      ZERO_CHECK(Clock::now() < end, "not tried, for lack of time");
      const Clock::time_point deadline = std::min(end, Clock::now() + kForAddress);
      auto connection = std::make_unique<StoreConnection>(options, deadline);
      const auto reply = connection->ask({"hello", proof}, deadline);
      ZERO_CHECK(reply.at(0) == "ok", "{}", reply.back());
      options.host = connection->address();
      return connection;
    } catch (const boost::system::system_error& error) {
      failures.push_back(fmt::format("{}: {}", address, error.code().message()));
    } catch (const Error& error) {
      failures.push_back(fmt::format("{}: {}", address, error.what()));
    }
  }
  fail("cannot reach port {} of that host: {}", options.port, fmt::join(failures, "; "));
}

/// The steps of connecting hosts, on one rank.
class HostConnector {
 public:
  HostConnector(Communicator& world, Device& device, const HostPeers& peers)
      : world_(world), device_(device), peers_(peers) {
    for (int host = 0; host < peers.hosts().hosts(); ++host) {
      if (!peers.obstacle_of(host).empty()) continue;
      if (host == peers.host() && peers.self() == 0) place_ = members_.size();
      members_.push_back({.host = host});
    }
  }

  bool has_several() const { return members_.size() > 1; }

  void introduce() {
    const auto texts = gather([this] {
      job_secret_ = read_job_secret(process_environment());
      return nlohmann::json{{"secret", job_secret_.has_value()}};
    });
    for (std::size_t i = 0; i < members_.size(); ++i) {
      members_[i].has_secret = texts[i].value("secret", false);
    }
  }

  void open_hub(const std::vector<std::string>& addresses) {
    const bool drawn = !std::ranges::all_of(members_, &Member::has_secret);
    std::string secret;
    const auto texts = gather([&] {
      if (place_ != 0U || !members_[0].failure.empty()) return nlohmann::json::object();
      if (drawn) secret = random_hex(kSecretDigits);
      hub_.secret = drawn ? JobSecret(secret, kSecretsName) : job_secret_;
      hub_.run = random_hex(kRunDigits);
      StoreOptions options = store_options(hub_, members_.size(), 0);
      options.host = addresses.empty() ? "" : addresses.front();
      options.spread = addresses.empty() ? Spread::several_hosts : Spread::unsaid;
      // All first ranks come at once.
      options.limits.unproven = std::max(options.limits.unproven, members_.size());
      server_ = std::make_unique<StoreServer>(options);
      return nlohmann::json{{"port", server_->port()},
                            {"addresses", addresses.empty() ? own_addresses() : addresses},
                            {"boot", boot_id()},
                            {"run", hub_.run},
                            {"secret", secret}};
    });
    if (!members_[0].failure.empty()) return;
    hub_.port = texts[0].at("port").get<int>();
    hub_.addresses = texts[0].at("addresses").get<std::vector<std::string>>();
    hub_.boot = texts[0].at("boot").get<std::string>();
    hub_.run = texts[0].at("run").get<std::string>();
    secret = texts[0].at("secret").get<std::string>();
    hub_.secret = drawn ? JobSecret(secret, kSecretsName) : job_secret_;
  }

  void connect() {
    gather([&] {
      if (!members_[0].failure.empty() || !members_[*place_].failure.empty()) {
        return nlohmann::json::object();
      }
      options_ = store_options(hub_, members_.size(), *place_);
      if (*place_ != 0) addresses_ = in_order(hub_);
      connection_ = *place_ == 0
                        ? std::make_unique<StoreConnection>(options_, Clock::now() + kForAddress)
                        : reach(addresses_, proof_, options_, patience());
      // Until the first heartbeat.
      const auto reply = connection_->ask(
          {"set", HeartbeatLink::key_of(members_[*place_].host), ""}, Clock::now() + kForAddress);
      ZERO_CHECK(reply.at(0) == "ok", "{}", reply.back());
      return nlohmann::json::object();
    });
  }

  HostConnection end() {
    HostConnection made{.warning = warning()};
    HeartbeatLinkParts parts{.hosts = peers_.hosts()};
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (!members_[i].failure.empty()) continue;
      parts.linked.push_back(members_[i].host);
      parts.store_ranks.push_back(static_cast<int>(i));
      parts.names.push_back(members_[i].name);
    }
    const bool linked = place_ && members_[*place_].failure.empty();
    if (!linked || !members_[0].failure.empty() || parts.linked.size() < 2) return made;
    parts.self = members_[*place_].host;
    parts.store = options_;
    std::erase_if(addresses_, is_name);
    parts.others = std::move(addresses_);
    parts.proof = proof_;
    parts.server = std::move(server_);
    parts.connection = std::move(connection_);
    made.link = std::make_unique<HeartbeatLink>(std::move(parts));
    return made;
  }

 private:
  /// For so long this rank tries to connect. The others wait meanwhile, in a collective.
  milliseconds patience() const {
    const milliseconds limit = world_.wait_limits()->timeout;
    return limit == milliseconds(0) ? kForAddresses : std::min(kForAddresses, limit / 2);
  }

  /// What the first ranks say, by member; notes their failures. Collective.
  template <typename Say>
  std::vector<nlohmann::json> gather(const Say& say) {
    nlohmann::json mine;
    if (place_) {
      nlohmann::json said = nlohmann::json::object();
      const std::string failure = failure_of([&] { said = say(); });
      mine = {{"said", said}, {"failure", failure}, {"name", host_name()}};
    }
    const auto texts = all_gather_texts(
        world_, device_,
        place_ ? mine.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) : "",
        "watchdog");
    std::vector<nlohmann::json> all;
    for (Member& member : members_) {
      const int rank = peers_.hosts().first_rank(member.host);
      const auto text = nlohmann::json::parse(texts[static_cast<std::size_t>(rank)]);
      if (member.failure.empty()) member.failure = text.at("failure").get<std::string>();
      member.name = text.at("name").get<std::string>();
      all.push_back(text.at("said"));
    }
    return all;
  }

  std::string host_text(const Member& member) const {
    return fmt::format("host {} ({})", member.name,
                       ranks_text(peers_.hosts().ranks_of(member.host)));
  }

  std::string warning() const {
    constexpr const char* kFollows =
        "a launcher notices deaths, and run.collective_timeout ends the job for hangs; let "
        "processes of the job's hosts connect to each other at any port, or give "
        "run.watchdog_hosts=false";
    if (!members_[0].failure.empty()) {
      return fmt::format(
          "run.watchdog: the hosts do not watch each other, since {}, where they would meet, "
          "cannot: "
          "{}; {}",
          host_text(members_[0]), members_[0].failure, kFollows);
    }
    std::vector<std::string> parts;
    for (const Member& member : members_) {
      if (member.failure.empty()) continue;
      parts.push_back(fmt::format("{}: {}", host_text(member), member.failure));
    }
    if (parts.empty()) return "";
    if (parts.size() > kMostNamed) {
      const std::string rest = fmt::format("and {} more", parts.size() - kMostNamed);
      parts.resize(kMostNamed);
      parts.push_back(rest);
    }
    return fmt::format("run.watchdog: {} and other hosts do not watch each other: {}; {}",
                       host_text(members_[0]), fmt::join(parts, "; "), kFollows);
  }

  Communicator& world_;
  Device& device_;
  const HostPeers& peers_;
  std::vector<Member> members_{};       // hosts whose ranks watch each other
  std::optional<std::size_t> place_{};  // of this rank among them, if it is the first of its host
  std::optional<JobSecret> job_secret_{};
  Hub hub_{};
  StoreOptions options_{};
  std::vector<std::string> addresses_{};  // of the hub, for this rank
  const std::string proof_ = random_hex(kSecretDigits);
  std::unique_ptr<StoreServer> server_{};
  std::unique_ptr<StoreConnection> connection_{};
};

}  // namespace

HostConnection connect_hosts(Communicator& world, Device& device, const HostPeers& peers,
                             const std::vector<std::string>& addresses) {
  HostConnector connector(world, device, peers);
  if (!connector.has_several()) return {};
  connector.introduce();
  connector.open_hub(addresses);
  connector.connect();
  return connector.end();
}

}  // namespace zero
