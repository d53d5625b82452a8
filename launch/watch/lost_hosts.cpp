// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/lost_hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/message_text.h"

namespace zero {
namespace {

constexpr std::int64_t kMostLostNamed = 4;

/// Hosts that one line names.
struct NamedHosts {
  std::vector<std::string> names{};
  LostHosts::Clock::duration longest{};

  void add(const std::string& name, LostHosts::Clock::duration time) {
    names.push_back(name);
    longest = std::max(longest, time);
  }
};

/// "run.watchdog: heartbeats of host b (ranks 4-7), host c (rank 8) come again after 7.4 s"
std::string line_of(NamedHosts hosts, std::string_view verb, std::string_view end) {
  const std::int64_t more = std::ssize(hosts.names) - kMostLostNamed;
  if (more > 0) {
    hosts.names.resize(kMostLostNamed);
    hosts.names.push_back("and " + counted(more, "more host"));
  }
  const std::chrono::duration<double> time = hosts.longest;
  return fmt::format("run.watchdog: heartbeats of {} {} {}{}", fmt::join(hosts.names, ", "), verb,
                     wait_text(time.count()), end);
}

}  // namespace

void LostHosts::expect(int host, std::string name, Clock::time_point now) {
  hosts_[host] = {.name = std::move(name), .heard = now};
}

void LostHosts::hear(int host, Clock::time_point now) { hosts_.at(host).heard = now; }

void LostHosts::leave(int host) { hosts_.at(host).left = true; }

std::optional<PeerLoss> LostHosts::Host::believed(std::optional<PeerLoss> noted,
                                                  Clock::time_point now) {
  if (noted != PeerLoss::ended) {
    ended.reset();
    return noted;
  }
  if (!ended) ended = now;
  return now - *ended >= kBeforeBelief ? noted : std::nullopt;
}

std::vector<std::string> LostHosts::note(const Losses& losses, Clock::time_point now) {
  NamedHosts missing;
  NamedHosts back;
  for (auto& [number, host] : hosts_) {
    const auto noted = losses.find(number);
    const bool is_noted = noted != losses.end();
    if (const auto loss =
            host.believed(is_noted ? std::optional(noted->second) : std::nullopt, now)) {
      host.loss = loss;
    } else if (!host.missing || host.heard != *host.missing) {
      host.loss.reset();
    }
    const bool may_come = host.loss && *host.loss != PeerLoss::ended && !host.left;
    if (may_come) {
      if (!host.missing) host.missing = host.heard;
      const auto time = now - *host.missing;
      if (time >= kUnsaid && !std::exchange(host.said, true)) missing.add(host.name, time);
    } else if (host.missing) {
      if (std::exchange(host.said, false) && !host.loss) back.add(host.name, now - *host.missing);
      host.missing.reset();
    }
  }
  std::vector<std::string> lines;
  if (!missing.names.empty()) {
    lines.push_back(line_of(std::move(missing), "have been missing for",
                            ": the host, or the network to it, has failed; the connection is tried "
                            "again, and the run goes on, unless ranks wait for that host "
                            "meanwhile"));
  }
  if (!back.names.empty()) lines.push_back(line_of(std::move(back), "come again after", ""));
  return lines;
}

}  // namespace zero
