// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/flight/visible_ranks.h"
#include "launch/watch/heartbeat_link.h"

namespace zero {

/// The ranks of this host and, where it has a link, those of other hosts by their heartbeats. Tells
/// other hosts of its own. Any thread may use it.
class JobRanks final : public VisibleRanks {
 public:
  /// `here` and `link` must outlive this object. A null link: this host alone. `hang_seconds`: as
  /// in suspicious_wait().
  JobRanks(const VisibleRanks& here, const HeartbeatLink* link, double hang_seconds);

  /// Takes over what the link has heard. At `now`, nanoseconds, later than the last; before a
  /// FaultFinder looks.
  void look(std::int64_t now);
  /// This host's heartbeat. Called by one thread.
  Heartbeat heartbeat(std::int64_t now, bool in_a_hurry);

  /// Indices from here on are of other hosts.
  int count_here() const { return here_.count(); }
  /// Whether a host is_cut_off().
  bool any_cut_off() const;
  /// How a rank has ended, as far as is known here. For a rank of this host: the kills for lack of
  /// memory before that, and after.
  std::string end_of(int index, std::optional<std::int64_t> kills_before = {},
                     std::optional<std::int64_t> kills_now = {}) const;

  int count() const override { return count_; }
  int rank(int index) const override;
  int self() const override { return here_.self(); }
  std::int64_t changed(int index) const override;
  FlightState read(int index) const override;
  bool ended(int index) const override;
  std::optional<host::Activity> activity(int index) const override;
  int host_of(int index) const override;
  bool is_silent(int index) const override { return is_elsewhere(index, &Other::is_silent); }
  bool is_cut_off(int index) const override { return is_elsewhere(index, &Other::is_cut_off); }
  bool decides_for_all() const override { return link_ == nullptr || link_->is_hub(); }

 private:
  /// Another host.
  struct Other {
    int host = 0;
    std::vector<int> ranks{};
    int first = 0;  // index of its first rank
    std::shared_ptr<const Heartbeat> heartbeat{};
    std::optional<PeerLoss> loss{};
    std::vector<FlightState> states{};  // as heard last, on this host's clock
    std::int64_t silence = 0;           // nanoseconds without a heartbeat, as this rank looked
    bool is_silent() const;
    /// Lost, and perhaps there: it may come back. Behind a reset it does so at once if it can.
    bool is_cut_off() const;
    std::string failed_text() const;
    bool has_left() const { return heartbeat && heartbeat->leaves; }
  };
  struct Shown {
    std::int64_t changed = -1;
    std::int64_t since = 0;
  };
  bool is_here(int index) const { return index < here_.count(); }
  /// Of an index of another host.
  const Other& other_of(int index) const;
  /// Whether the rank's host is another one, and is so.
  bool is_elsewhere(int index, bool (Other::*so)() const) const;
  void hear(Other& other, const HeartbeatLink::Heard& heard, std::int64_t now);

  const VisibleRanks& here_;
  const HeartbeatLink* link_;
  std::int64_t suspicious_;
  int host_ = 0;
  int count_ = 0;
  std::vector<Shown> shown_;  // of ranks here, to other hosts
  std::int64_t heartbeats_ = 0;
  mutable std::mutex mutex_;  // guards the following
  std::vector<Other> others_{};
  std::set<RankList> rank_lists_{};  // of their states, one of each content
  std::optional<std::int64_t> looked_{};
};

}  // namespace zero
