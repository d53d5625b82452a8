// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace zero {

/// Ranks before `rank` on its host, if `hosts` has the name of each rank's host, in rank order.
inline int rank_on_host(const std::vector<std::string>& hosts, int rank) {
  const auto self = hosts.begin() + rank;
  return static_cast<int>(std::count(hosts.begin(), self, *self));
}
/// Ranks on that host.
inline int ranks_on_host(const std::vector<std::string>& hosts, int rank) {
  return static_cast<int>(std::ranges::count(hosts, hosts[static_cast<std::size_t>(rank)]));
}

/// A group's ranks by host. Hosts are numbered in the order of their first ranks.
class RanksOfHosts {
 public:
  RanksOfHosts() = default;
  /// `host_of_rank` has the name of each rank's host, in rank order.
  explicit RanksOfHosts(const std::vector<std::string>& host_of_rank) {
    for (const std::string& name : host_of_rank) {
      const auto at = std::ranges::find(names_, name) - names_.begin();
      if (at == std::ssize(names_)) {
        names_.push_back(name);
        ranks_.emplace_back();
      }
      ranks_[static_cast<std::size_t>(at)].push_back(static_cast<int>(host_of_.size()));
      host_of_.push_back(static_cast<int>(at));
    }
  }

  int hosts() const { return static_cast<int>(names_.size()); }
  int ranks() const { return static_cast<int>(host_of_.size()); }
  /// By the host's number.
  const std::vector<std::string>& names() const { return names_; }
  const std::string& name(int host) const { return names_.at(static_cast<std::size_t>(host)); }
  /// The number of the rank's host.
  int host_of(int rank) const { return host_of_.at(static_cast<std::size_t>(rank)); }
  /// Of a host, in ascending order; at least one.
  const std::vector<int>& ranks_of(int host) const {
    return ranks_.at(static_cast<std::size_t>(host));
  }
  int first_rank(int host) const { return ranks_of(host).front(); }
  /// The host whose first rank `rank` is; -1 if it is none.
  int led_by(int rank) const {
    const int host = host_of(rank);
    return first_rank(host) == rank ? host : -1;
  }

 private:
  std::vector<std::string> names_{};
  std::vector<std::vector<int>> ranks_{};
  std::vector<int> host_of_{};
};

}  // namespace zero
