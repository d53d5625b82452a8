// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/call_context.h"

namespace zero {

/// A rank that is waited for.
struct AbsentRank {
  int rank = 0;
  std::string state;  ///< what is known of it: "process 4711 is stopped"
};

/// A rank's wait: in which call, for which ranks.
struct Waiting {
  std::string who;  ///< "[rank 0] all_gather(h.3)"
  std::int64_t step = CallContext::kNoStep;
  std::vector<AbsentRank> absent{};
};

/// One wait of a rank for others, held against its limits. Made where the quick ways of waiting are
/// over: it reads the clock. What counts is the time in which this rank looked: if a whole job is
/// stopped and goes on later (a suspended job or laptop, a frozen container), nobody is late.
class LongWait {
 public:
  enum class Due { nothing, warning, timeout };

  /// `behind`: how many other waits of the same call this one may stand behind. Each delays its
  /// timeout by a twentieth, so that the first rank to give up is one that waits for the very rank
  /// that does not come.
  explicit LongWait(const CallContext& context, int behind = 0);

  /// What the time has come for; the warning once. To be called every kBetweenLooks or sooner:
  /// longer gaps count as twice that.
  Due due();
  /// Time until due() has something new; at most `most`, and kBetweenLooks.
  std::chrono::milliseconds until_due(std::chrono::milliseconds most) const;
  /// Hands the line of the warning to WaitLimits::warn.
  void warn(const Waiting& waiting) const;
  /// The message with which the wait ends.
  std::string overdue(const Waiting& waiting) const;

  /// All of it: to be called now and then while waiting. Warns, and throws zero::Error at the
  /// timeout, unless `waiting()` finds no rank absent.
  void look(const std::function<Waiting()>& waiting);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kBetweenLooks{1000};

  /// Counted so far, and since the last look.
  Clock::duration passed(Clock::time_point now) const;

  std::shared_ptr<const WaitLimits> limits_;
  std::chrono::milliseconds timeout_;
  Clock::time_point looked_ = Clock::now();
  Clock::duration counted_{};
  bool warned_ = false;
};

}  // namespace zero
