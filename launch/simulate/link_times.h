// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "collectives/backends.h"
#include "launch/plan/machine.h"
#include "launch/simulate/meetings.h"
#include "launch/simulate/rank_times.h"

namespace zero {

/// What holds a collective up.
enum class LinkLevel : std::uint8_t { latency, within_host, between_hosts, between_switches };
inline constexpr std::size_t kLinkLevels = 4;
std::string_view name_of(LinkLevel level);

/// The hosts, or switches, that a group has ranks on.
struct UnitsSpanned {
  int count = 1;
  int most_ranks = 1;  ///< of the group on one of them
  /// A world may leave its last host partly empty: the fewest send the most to other hosts.
  int fewest_ranks = 1;
};

/// Where the ranks of a group are: ranks fill hosts, hosts fill switches.
struct GroupSpread {
  int ranks = 1;
  UnitsSpanned hosts{};
  UnitsSpanned switches{};
};

/// The durations of collectives, by the algorithm of the run's backend: latency of its steps, and
/// the bytes that cross each level over its bandwidth. All ranks of a host send at once, each in
/// its own group of the same axis, and share what leaves the host.
class LinkTimes final : public planning::CollectiveTimes {
 public:
  struct Options {
    int world = 1;
    BackendKind backend = BackendKind::local;
    CoreShare cores{};
  };
  /// `machine` must outlive this, and `meetings`, where ranks that are simulated side by side wait
  /// for each other; null: the others come when this rank does.
  LinkTimes(const Machine& machine, const Options& options, Meetings* meetings = nullptr);

  planning::Span span(const planning::PlannedCollective& collective, double begin) override;

  /// The duration of a collective, and the level that most of it is spent at.
  struct Cost {
    double latency = 0;
    double transfer = 0;                       ///< of the slowest level
    double sum = 0;                            ///< of kernels that sum received values
    double working = 0;                        ///< seconds of these that take of compute's speed
    double transfer_share = 1;                 ///< as in planning::Span
    LinkLevel level = LinkLevel::within_host;  ///< the slowest
    double seconds() const { return latency + transfer + sum; }
  };
  Cost cost(const planning::PlannedCollective& collective);
  GroupSpread spread(const std::vector<int>& ranks) const;

  /// Seconds so far by level; sums count as within a host.
  using Totals = std::array<double, kLinkLevels>;
  const Totals& totals() const { return totals_; }

 private:
  /// Bytes that a rank sends to others: of its host, of other hosts, beyond its switch.
  struct Sent {
    double within_host = 0;
    double between_hosts = 0;
    double between_switches = 0;
  };
  Cost transfer(const Sent& sent) const;
  Cost ring(const GroupSpread& at, double bytes, double hops) const;
  Cost all_reduce(const GroupSpread& at, double bytes) const;
  Cost direct(const GroupSpread& at, double bytes) const;
  Cost halving(const GroupSpread& at, const planning::PlannedCollective& collective) const;
  Cost of_gpus(const planning::PlannedCollective& collective, const GroupSpread& at) const;
  Cost of_cpus(const planning::PlannedCollective& collective, const GroupSpread& at) const;
  double ring_latency(const GroupSpread& at) const;
  double tree_latency(const GroupSpread& at) const;
  double farthest(const GroupSpread& at) const;
  double latency(LinkLevel level) const;
  double bandwidth(LinkLevel level) const;
  double share_beside_compute(LinkLevel level) const;
  double sum_seconds(double bytes) const;

  const Machine& machine_;
  Options options_;
  Meetings* meetings_;
  std::map<const std::vector<int>*, GroupSpread> spreads_;
  Totals totals_{};
};

}  // namespace zero
