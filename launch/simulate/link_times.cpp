// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/simulate/link_times.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "collectives/nccl/plan.h"

namespace zero {
namespace {

using planning::PlannedCollective;

// Of collectives/host: values that travel with the header of a call.
constexpr std::int64_t kWithHeader = std::int64_t{8} << 10;
// Of collectives/nccl: the most bytes of all ranks together that each rank combines itself.
constexpr double kCombinedWhole = 1 << 20;
// Of NCCL's own model: of a ring's bandwidth, what a tree reaches.
constexpr double kTreeShare = 0.92;

/// The units of `size` ranks that the ranks, which ascend, are in.
UnitsSpanned units_spanned(const std::vector<int>& ranks, int size) {
  UnitsSpanned units{.count = 0, .fewest_ranks = static_cast<int>(ranks.size())};
  for (auto begin = ranks.begin(); begin != ranks.end(); ++units.count) {
    const auto end =
        std::find_if(begin, ranks.end(), [&](int rank) { return rank / size != *begin / size; });
    const auto count = static_cast<int>(end - begin);
    units.most_ranks = std::max(units.most_ranks, count);
    units.fewest_ranks = std::min(units.fewest_ranks, count);
    begin = end;
  }
  return units;
}

double share_of_peers(int ranks) { return static_cast<double>(ranks - 1) / ranks; }

}  // namespace

std::string_view name_of(LinkLevel level) {
  constexpr std::array<std::string_view, kLinkLevels> kNames{
      "latency", "links within hosts", "links between hosts", "links between switches"};
  return kNames.at(static_cast<std::size_t>(level));
}

LinkTimes::LinkTimes(const Machine& machine, const Options& options, Meetings* meetings)
    : machine_(machine), options_(options), meetings_(meetings) {}

GroupSpread LinkTimes::spread(const std::vector<int>& ranks) const {
  const int hosts = machine_.times.hosts_of_switch;
  const int of_switch = machine_.devices * (hosts > 0 ? hosts : machine_.hosts);
  return {.ranks = static_cast<int>(ranks.size()),
          .hosts = units_spanned(ranks, machine_.devices),
          .switches = units_spanned(ranks, of_switch)};
}

double LinkTimes::latency(LinkLevel level) const {
  const MachineTimes& times = machine_.times;
  if (level == LinkLevel::within_host) return times.within_host_latency;
  if (level == LinkLevel::between_switches && times.between_switches_latency > 0)
    return times.between_switches_latency;
  return times.between_hosts_latency;
}

/// Of a device, while all devices of its host send.
double LinkTimes::bandwidth(LinkLevel level) const {
  const MachineTimes& times = machine_.times;
  if (level == LinkLevel::within_host) return machine_.within_host / options_.cores.copy_slowdown;
  const int devices = std::min(machine_.devices, options_.world);
  double rate = machine_.between_hosts;
  if (level == LinkLevel::between_switches && times.between_switches > 0)
    rate = times.between_switches;
  return times.host_bandwidth > 0 ? std::min(rate, times.host_bandwidth / devices) : rate;
}

/// Of the rate of a CPU's transfers. Other ranks of a host compute, and send, as this one does:
/// each transfer has a part of the link, and the limit is of each.
double LinkTimes::share_beside_compute(LinkLevel level) const {
  const double limit = machine_.times.beside_compute;
  if (level == LinkLevel::within_host || limit == 0) return 1;
  return options_.cores.transfer_share(std::min(1.0, limit / bandwidth(level)));
}

double LinkTimes::sum_seconds(double bytes) const {
  return bytes / (machine_.times.memory_bandwidth * machine_.times.memory) *
         options_.cores.copy_slowdown;
}

LinkTimes::Cost LinkTimes::transfer(const Sent& sent) const {
  Cost cost;
  const auto take = [&](LinkLevel level, double bytes) {
    if (bytes <= 0) return;
    const double seconds = bytes / bandwidth(level);
    if (seconds <= cost.transfer) return;
    cost.transfer = seconds;
    cost.level = level;
  };
  take(LinkLevel::within_host, sent.within_host);
  take(LinkLevel::between_hosts, sent.between_hosts);
  take(LinkLevel::between_switches, sent.between_switches);
  return cost;
}

double LinkTimes::ring_latency(const GroupSpread& at) const {
  return (at.ranks - at.hosts.count) * latency(LinkLevel::within_host) +
         (at.hosts.count - at.switches.count) * latency(LinkLevel::between_hosts) +
         (at.switches.count - 1) * latency(LinkLevel::between_switches);
}

/// Up or down a tree over hosts, and along a chain in each.
double LinkTimes::tree_latency(const GroupSpread& at) const {
  return (at.hosts.most_ranks - 1) * latency(LinkLevel::within_host) +
         std::ceil(std::log2(at.hosts.count)) * farthest(at);
}

double LinkTimes::farthest(const GroupSpread& at) const {
  return latency(at.switches.count > 1 ? LinkLevel::between_switches
                 : at.hosts.count > 1  ? LinkLevel::between_hosts
                                       : LinkLevel::within_host);
}

/// Each rank passes on `bytes`, the first of which take `hops` seconds to the last rank. A ring
/// enters and leaves each host once, through all its devices that are in the group.
LinkTimes::Cost LinkTimes::ring(const GroupSpread& at, double bytes, double hops) const {
  Cost cost =
      transfer({.within_host = at.hosts.most_ranks > 1 ? bytes : 0,
                .between_hosts = at.hosts.count > 1 ? bytes / at.hosts.fewest_ranks : 0,
                .between_switches = at.switches.count > 1 ? bytes / at.switches.fewest_ranks : 0});
  cost.latency = machine_.times.collective + hops;
  return cost;
}

/// NCCL's own, by the quicker of two algorithms: twice around a ring, or up and down a tree, with
/// fewer hops and more bytes.
LinkTimes::Cost LinkTimes::all_reduce(const GroupSpread& at, double bytes) const {
  return std::ranges::min(ring(at, 2 * bytes * share_of_peers(at.ranks), 2 * ring_latency(at)),
                          ring(at, 2 * bytes / kTreeShare, 2 * tree_latency(at)), {},
                          &Cost::seconds);
}

/// Each rank sends each other one a slice of `bytes`.
LinkTimes::Cost LinkTimes::direct(const GroupSpread& at, double bytes) const {
  Cost cost = transfer({.within_host = bytes * (at.hosts.most_ranks - 1),
                        .between_hosts = bytes * (at.ranks - at.hosts.fewest_ranks),
                        .between_switches = bytes * (at.ranks - at.switches.fewest_ranks)});
  cost.latency = machine_.times.collective + farthest(at) + (at.ranks - 1) * machine_.times.message;
  return cost;
}

/// Ranks exchange half of what they still sum with a partner, the nearest first.
LinkTimes::Cost LinkTimes::halving(const GroupSpread& at,
                                   const PlannedCollective& collective) const {
  Cost total;
  auto bytes = static_cast<double>(collective.total_bytes);
  for (int apart = 1; apart < at.ranks; apart *= 2) {
    bytes /= 2;
    const auto spanned = [&](const UnitsSpanned& units) {
      return apart < units.most_ranks ? UnitsSpanned{.count = 1, .most_ranks = 2, .fewest_ranks = 2}
                                      : UnitsSpanned{.count = 2};
    };
    const GroupSpread pair{2, spanned(at.hosts), spanned(at.switches)};
    const Cost round = direct(pair, bytes);
    total.latency += round.latency;
    if (round.transfer > 0) total.level = round.level;
    total.transfer += round.transfer;
    total.sum += sum_seconds(3 * bytes);
    if (apart == 1)  // sums travel in fp32
      bytes *= static_cast<double>(size_of(DType::fp32)) /
               static_cast<double>(size_of(collective.dtype));
  }
  return total;
}

LinkTimes::Cost LinkTimes::of_gpus(const PlannedCollective& collective,
                                   const GroupSpread& at) const {
  const auto total = static_cast<double>(collective.total_bytes);
  const double passed = total * share_of_peers(at.ranks);
  const double slice = total / at.ranks;
  const bool exact = options_.backend == BackendKind::nccl;
  switch (collective.operation) {
    case Operation::all_gather:
      return ring(at, passed, ring_latency(at));
    case Operation::reduce_scatter: {
      Cost cost;
      if (!exact) {
        cost = ring(at, passed, ring_latency(at));
        cost.sum = sum_seconds(2 * slice);
        return cost;
      }
      const bool halves = at.ranks >= nccl::kHalvingRanks &&
                          std::has_single_bit(unsigned(at.ranks)) &&
                          slice <= static_cast<double>(nccl::kHalvingBytes);
      if (halves) return halving(at, collective);
      cost = direct(at, slice);
      cost.sum = sum_seconds(total + slice);
      return cost;
    }
    case Operation::all_reduce: {
      if (!exact || !is_floating(collective.dtype)) return all_reduce(at, total);
      Cost cost;
      if (total * at.ranks <= kCombinedWhole) {
        cost = ring(at, total * (at.ranks - 1), ring_latency(at));
        cost.sum = sum_seconds(total * (at.ranks + 1));
        return cost;
      }
      cost = direct(at, slice);
      const Cost gathered = ring(at, passed, ring_latency(at));
      cost.latency += gathered.latency;
      cost.transfer += gathered.transfer;
      cost.sum = sum_seconds(total + slice);
      return cost;
    }
    case Operation::all_to_all:
      return direct(at, slice);
    case Operation::broadcast:  // chunks follow each other around the ring
      return ring(at, total, farthest(at));
    case Operation::barrier:
      return all_reduce(at, 0);
  }
  return {};
}

/// Ranks of one host read and write each other's memory; between hosts a value crosses once.
LinkTimes::Cost LinkTimes::of_cpus(const PlannedCollective& collective,
                                   const GroupSpread& at) const {
  const auto total = static_cast<double>(collective.total_bytes);
  const double slice = total / at.ranks;
  const double others = total * (at.ranks - at.hosts.fewest_ranks) / at.ranks;  // of other hosts
  const double crossing = others / at.hosts.fewest_ranks;  // a rank's part of them
  const bool small = collective.total_bytes <= kWithHeader;
  const bool shared = collective.to_shared_memory && at.hosts.count == 1;
  // Whole sub-trees cross as one sum in fp32.
  const double sums = at.hosts.fewest_ranks == 1
                          ? 1
                          : static_cast<double>(size_of(DType::fp32)) /
                                static_cast<double>(size_of(collective.dtype)) /
                                at.hosts.fewest_ranks;
  Sent sent;
  switch (collective.operation) {
    case Operation::all_gather:
      sent = {.within_host = shared ? static_cast<double>(collective.own_bytes) : total,
              .between_hosts = crossing};
      break;
    case Operation::reduce_scatter:
      sent = {.within_host = total, .between_hosts = others * std::min(sums, 1.0)};
      break;
    case Operation::all_reduce:
      sent = {.within_host = small ? 0 : 2 * total,
              .between_hosts = others * std::min(sums, 1.0) + crossing};
      break;
    case Operation::all_to_all:
      sent = {.within_host = total, .between_hosts = slice * (at.ranks - at.hosts.fewest_ranks)};
      break;
    case Operation::broadcast:
      sent = {.within_host = small ? 0 : total, .between_hosts = crossing};
      break;
    case Operation::barrier:
      break;
  }
  Cost cost = transfer(sent);
  cost.transfer_share = share_beside_compute(cost.level);
  const int barriers = small || (shared && collective.own_bytes == 0) ? 1 : 2;
  cost.latency = barriers * latency(LinkLevel::within_host) * options_.cores.copy_slowdown;
  // The communicating threads take cores while they copy and meet; for the wire they wait.
  cost.working = cost.latency;
  if (sent.within_host > 0) cost.working += sent.within_host / bandwidth(LinkLevel::within_host);
  if (at.hosts.count > 1) {
    cost.latency += std::ceil(std::log2(at.hosts.count)) * farthest(at);
  }
  return cost;
}

LinkTimes::Cost LinkTimes::cost(const PlannedCollective& collective) {
  const auto [found, made] = spreads_.try_emplace(&collective.ranks);
  if (made) found->second = spread(collective.ranks);
  const bool gpus =
      options_.backend == BackendKind::nccl || options_.backend == BackendKind::nccl_fast;
  if (!gpus) return of_cpus(collective, found->second);
  Cost cost = of_gpus(collective, found->second);
  cost.working = cost.seconds();
  return cost;
}

planning::Span LinkTimes::span(const PlannedCollective& collective, double begin) {
  const Cost taken = cost(collective);
  totals_[static_cast<std::size_t>(LinkLevel::latency)] += taken.latency;
  totals_[static_cast<std::size_t>(taken.level)] += taken.transfer;
  totals_[static_cast<std::size_t>(LinkLevel::within_host)] += taken.sum;
  if (meetings_ != nullptr) begin = meetings_->latest(collective.ranks, begin);
  return {begin, begin + taken.seconds(), taken.working, taken.transfer_share};
}

}  // namespace zero
