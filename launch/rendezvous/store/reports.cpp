// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/store/reports.h"

#include <fmt/format.h>

namespace zero {

void StoreReports::dropped(const std::string& peer, const std::string& why) {
  tell(fmt::format("a connection from {} was dropped: {}", peer, why));
}

void StoreReports::cannot_accept(const std::string& why) {
  tell(fmt::format("no connection can be taken for now: {}", why));
}

void StoreReports::tell(const std::string& text) {
  const auto now = Clock::now();
  if (!report_ || now < next_) {
    ++untold_;
    return;
  }
  next_ = now + kBetween;
  const std::string before = untold_ == 0 ? "" : fmt::format(" ({} more like it before)", untold_);
  untold_ = 0;
  try {
    report_("[rank 0] store: " + text + before);
  } catch (const std::exception&) {
    // The job does not depend on its log.
  }
}

}  // namespace zero
