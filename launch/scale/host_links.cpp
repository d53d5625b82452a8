// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/scale/host_links.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <tuple>
#include <utility>

#include "base/median.h"
#include "collectives/host_values.h"

namespace zero {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr int kRounds = 30;
constexpr int kLongRounds = 3;
constexpr std::int64_t kLongBytes = std::int64_t{16} << 20;
constexpr int kAllLinks = 8;  ///< hosts
/// Beyond it timestamps of files and logs of two hosts mislead.
constexpr double kClockOffset = 1.0;
/// A link beyond these shares of the median one is the one that all ranks wait for.
constexpr double kSlowShare = 0.5;
constexpr double kLateShare = 4.0;
/// Bytes a second between hosts of GPUs that TCP seldom exceeds, and RDMA adapters do.
constexpr double kLikelyTcp = 5e9;

double now_seconds() {
  return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Two ranks that send values to each other; rank 0 measures.
class Pair {
 public:
  Pair(Communicator& ranks, Device& device) : ranks_(ranks), device_(device) {}

  /// Rank 1's value, as rank 0 gets it in answer to a message.
  double ask(const std::function<double()>& answer) {
    double value = 0;
    send(std::span(&value, 1), 0);
    if (ranks_.rank() == 1) value = answer();
    send(std::span(&value, 1), 1);
    return value;
  }
  template <typename T>
  void send(std::span<T> values, int root) {
    host_broadcast(ranks_, device_, View::of(values), root, {"preflight", {}});
  }
  bool measures() const { return ranks_.rank() == 0; }

 private:
  Communicator& ranks_;
  Device& device_;
};

/// Latency and offset, of the quickest of the rounds.
void measure_small(Pair& pair, const PreflightQuestion& question, HostLink& link) {
  const auto clock = [&] { return Seconds(question.clock().time_since_epoch()).count(); };
  static_cast<void>(pair.ask(clock));  // connections are made
  double quickest = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    const double begin = now_seconds();
    const double here = clock();
    const double there = pair.ask(clock);
    const double taken = now_seconds() - begin;
    if (taken >= quickest) continue;
    quickest = taken;
    link.latency = link.uncertainty = taken / 2;
    link.offset = there - (here + taken / 2);
  }
}

/// Bandwidth: each long message is answered by a small one.
void measure_long(Pair& pair, HostLink& link) {
  std::vector<float> values(static_cast<std::size_t>(kLongBytes) / sizeof(float));
  std::array<double, 2> quickest{};
  quickest.fill(std::numeric_limits<double>::infinity());
  for (int round = 0; round < kLongRounds; ++round) {
    for (int root = 0; root < 2; ++root) {
      double done = 0;
      pair.send(std::span(&done, 1), 1 - root);
      const double begin = now_seconds();
      pair.send(std::span(values), root);
      pair.send(std::span(&done, 1), 1 - root);
      auto& best = quickest[static_cast<std::size_t>(root)];
      best = std::min(best, now_seconds() - begin);
    }
  }
  link.bytes_per_second = static_cast<double>(kLongBytes) / *std::ranges::max_element(quickest);
}

std::vector<HostLink> links_to_measure(int hosts) {
  std::vector<HostLink> links;
  const auto add = [&](int from, int to) { links.push_back({.from = from, .to = to}); };
  for (int from = 0; from < hosts; ++from) {
    for (int to = from + 1; to < hosts; ++to) {
      if (hosts <= kAllLinks || from == 0 || to == from + 1) add(from, to);
    }
  }
  return links;
}

/// In the order in which they travel.
auto figures_of(HostLink& link) {
  return std::tie(link.latency, link.bytes_per_second, link.offset, link.uncertainty);
}

std::string link_text(const RanksOfHosts& hosts, const HostLink& link) {
  return fmt::format("{} - {}: {:.2f} GB/s, {:.0f} us", hosts.name(link.from), hosts.name(link.to),
                     link.bytes_per_second / 1e9, link.latency * 1e6);
}

}  // namespace

std::vector<HostLink> measure_links(Communicator& ranks, Device& device, const RanksOfHosts& hosts,
                                    const PreflightQuestion& question) {
  const int mine = hosts.led_by(ranks.rank());
  std::vector<HostLink> links = links_to_measure(hosts.hosts());
  auto measured = nlohmann::json::array();
  for (HostLink& link : links) {
    const bool is_part = mine == link.from || mine == link.to;
    const auto two = ranks.split(is_part ? 0 : -1, ranks.rank());
    if (!two) continue;
    Pair pair(*two, device);
    measure_small(pair, question, link);
    measure_long(pair, link);
    if (!pair.measures()) continue;
    measured.push_back(figures_of(link));
  }
  std::vector<nlohmann::json> of_ranks;
  for (const std::string& text :
       all_gather_texts(ranks, device, measured.dump(), "preflight links")) {
    of_ranks.push_back(nlohmann::json::parse(text));
  }
  std::vector<std::size_t> taken(of_ranks.size(), 0);
  for (HostLink& link : links) {
    const auto rank = static_cast<std::size_t>(hosts.first_rank(link.from));
    figures_of(link) =
        of_ranks[rank].at(taken[rank]++).get<std::tuple<double, double, double, double>>();
  }
  return links;
}

PreflightLine links_line(const RanksOfHosts& hosts, const std::vector<HostLink>& links,
                         DeviceKind device) {
  if (links.empty()) return {.name = "links", .text = "one host: none between hosts"};
  std::vector<double> latencies;
  std::vector<double> rates;
  std::vector<std::string> texts;
  for (const HostLink& link : links) {
    latencies.push_back(link.latency);
    rates.push_back(link.bytes_per_second);
    texts.push_back(link_text(hosts, link));
  }
  const double least = kSlowShare * median(rates);
  const double most = kLateShare * median(latencies);
  const auto bad = std::ranges::find_if(links, [&](const HostLink& link) {
    return link.bytes_per_second < least || link.latency > most;
  });
  if (bad == links.end()) {
    std::string text = fmt::format("{}", fmt::join(texts, "; "));
    if (device == DeviceKind::cuda && *std::ranges::min_element(rates) < kLikelyTcp) {
      text += fmt::format(
          "; less than {:.0f} GB/s: if the hosts are sold with more, NCCL takes TCP in place of "
          "InfiniBand, RoCE or EFA (NCCL_DEBUG=INFO says which)",
          kLikelyTcp / 1e9);
    }
    return {.name = "links", .text = std::move(text)};
  }
  return {false, "links",
          fmt::format("{}; expected at least {:.2f} GB/s and at most {:.0f} us as the other links "
                      "have: every rank waits for the slowest one; look for a lower rate of its "
                      "port, or for hosts that are not beside each other",
                      link_text(hosts, *bad), least / 1e9, most * 1e6)};
}

PreflightLine clocks_line(const RanksOfHosts& hosts, const std::vector<HostLink>& links) {
  double most = 0;
  for (const HostLink& link : links) {
    const double offset = std::abs(link.offset);
    most = std::max(most, offset + link.uncertainty);
    if (offset - link.uncertainty <= kClockOffset) continue;
    return {false, "clocks",
            fmt::format("the clock of {} is {:.3f} s {} that of {}, expected at most {:.0f} s: "
                        "start chrony or ntpd on both",
                        hosts.name(link.to), offset, link.offset > 0 ? "ahead of" : "behind",
                        hosts.name(link.from), kClockOffset)};
  }
  return {.name = "clocks", .text = fmt::format("within {:.3f} ms of each other", most * 1e3)};
}

}  // namespace zero
