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

/// Who waits, in which call, for whom.
struct Waiting {
  std::string who;  ///< "[rank 0] all_gather(h.3)"
  std::int64_t step = CallContext::kNoStep;
  std::vector<AbsentRank> absent{};
};

/// One wait of a rank for others, held against its limits. Made where the quick ways of waiting are
/// over: it reads the clock.
class LongWait {
 public:
  enum class Due { nothing, warning, timeout };

  /// `behind`: how many other waits of the same call this one may stand behind. Each delays its
  /// timeout by a twentieth, so that the first rank to give up is one that waits for the very rank
  /// that does not come.
  explicit LongWait(const CallContext& context, int behind = 0);

  /// What the time has come for; the warning once.
  Due due();
  /// Time until due() has something new; at most `most`.
  std::chrono::milliseconds until_due(std::chrono::milliseconds most) const;
  /// Hands the line of the warning to who asked for it.
  void warn(const Waiting& waiting) const;
  /// The message with which the wait ends.
  std::string overdue(const Waiting& waiting) const;

  /// All of it: to be called now and then while waiting. Warns, and throws zero::Error at the
  /// timeout, unless `waiting()` finds that nobody is absent any more.
  void look(const std::function<Waiting()>& waiting);

 private:
  using Clock = std::chrono::steady_clock;

  std::chrono::milliseconds passed() const;

  std::shared_ptr<const WaitLimits> limits_;
  std::chrono::milliseconds timeout_;
  Clock::time_point begin_ = Clock::now();
  bool warned_ = false;
};

}  // namespace zero
