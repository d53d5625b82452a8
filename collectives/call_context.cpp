// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/call_context.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace zero {

void CallContext::set_limits(WaitLimits limits) {
  const auto warning = limits.warning.count();
  const auto timeout = limits.timeout.count();
  ZERO_CHECK(warning >= 0 && timeout >= 0,
             "wait limits of {} ms (warning) and {} ms (timeout); expected 0, for none, or more",
             warning, timeout);
  ZERO_CHECK(timeout == 0 || warning <= timeout,
             "wait limits: a warning after {} ms would come after the timeout, {} ms; give the "
             "warning the shorter time, or 0 for none",
             warning, timeout);
  auto fresh = std::make_shared<const WaitLimits>(std::move(limits));
  const std::scoped_lock lock(mutex_);
  limits_ = std::move(fresh);
}

std::shared_ptr<const WaitLimits> CallContext::limits() const {
  const std::scoped_lock lock(mutex_);
  return limits_;
}

void CallContext::remove(const CollectiveListener& listener) noexcept {
  const auto found = std::ranges::find(listeners_, &listener);
  if (found != listeners_.end()) listeners_.erase(found);
}

bool CallContext::heard() const noexcept {
  return std::ranges::any_of(listeners_, &CollectiveListener::listens);
}

void CallContext::tell(const CollectiveRecord& record, const Mark& begin,
                       const Mark& end) const noexcept {
  for (CollectiveListener* const listener : listeners_) {
    if (listener->listens()) listener->collective(record, begin, end);
  }
}

}  // namespace zero
