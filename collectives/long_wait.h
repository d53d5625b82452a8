// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/call_context.h"

namespace zero {

/// A rank that others wait for.
struct AbsentRank {
  int rank = 0;
  std::string state;  ///< as far as known: "process 4711 is stopped", "on host b: unknown"

  /// The name of the rank's host, if the state has it; else empty.
  std::string host() const;
};

/// A rank's wait: the call, its step and the absent ranks.
struct Waiting {
  std::string who;  ///< "[rank 0] all_gather(h.3)"
  std::int64_t step = CallContext::kNoStep;
  std::vector<AbsentRank> absent{};
};

/// The ranks that hold up rank `self`, which waits for `absent`. A rank that answered waits itself,
/// so the ranks that it waits for count in its place, and so on. All are numbers of one group;
/// `self` is never to blame. Empty if all wait for each other.
std::vector<int> ranks_to_blame(const std::vector<int>& absent,
                                const std::map<int, std::vector<int>>& answers, int self);

/// One wait of a rank for others, measured against its limits. Reads the clock, so fast paths wait
/// without one. Counts only the time in which this rank kept looking: if a whole job is stopped and
/// goes on later (a suspended job or laptop, a frozen container), no rank is late.
class LongWait {
 public:
  enum class Due { nothing, warning, timeout };

  /// `behind`: the number of other waits of the same call that may have to end before this one.
  /// Each delays the timeout, by a twentieth and kBehind at least, so that the first rank to time
  /// out is one that waits for the absent rank directly.
  explicit LongWait(const CallContext& context, int behind = 0);

  /// The limit that has passed, if any; reports the warning once at WaitLimits::warning, and again
  /// at 2, 4, 8 ... times it. Must be called at least every kBetweenLooks: a longer gap counts as
  /// 2 * kBetweenLooks.
  Due due();
  /// Time until due() has something new; at most `most`, and kBetweenLooks.
  std::chrono::milliseconds until_due(std::chrono::milliseconds most) const;
  /// Passes the warning that due() reported to WaitLimits::warn.
  void warn(const Waiting& waiting) const;
  /// The message of the error at the timeout.
  std::string overdue(const Waiting& waiting) const;
  /// Whether a message, of any backend, is overdue()'s.
  static bool is_overdue(std::string_view message);
  /// The first of the absent ranks in overdue()'s message, which are in ascending order; nothing:
  /// it is none. Errors reach other threads and ranks as text alone.
  static std::optional<AbsentRank> first_absent(std::string_view message);

  /// Checks the limits; must be called repeatedly while waiting. Warns, and throws zero::Error at
  /// the timeout, unless `waiting()` finds no rank absent.
  void look(const std::function<Waiting()>& waiting);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kBetweenLooks{1000};
  static constexpr std::chrono::milliseconds kBehind{2500};

  /// The time counted up to `now`.
  Clock::duration passed(Clock::time_point now) const;

  std::shared_ptr<const WaitLimits> limits_;
  std::chrono::milliseconds timeout_;
  std::chrono::milliseconds warning_;       // the last that due() reported; the first until then
  std::chrono::milliseconds next_warning_;  // 0: none
  Clock::time_point looked_ = Clock::now();
  Clock::duration counted_{};
};

}  // namespace zero
