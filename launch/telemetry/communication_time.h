// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <utility>

#include "collectives/listener.h"

namespace zero {

/// Time that a rank's collectives take on their stream, waits for other ranks included. Used by the
/// host thread that issues them.
class CommunicationTime final : public CollectiveListener {
 public:
  bool listens() const noexcept override { return true; }
  void collective(const CollectiveRecord& record, Mark begin, Mark end) noexcept override;

  /// Seconds of the collectives that have ended and were in no earlier call's sum. Never blocks.
  double take();

 private:
  std::deque<std::pair<Mark, Mark>> running_;  // begin and end, in order
};

}  // namespace zero
