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
  disk_decides_ = !limits_->disk_phase.empty();
}

std::shared_ptr<const WaitLimits> CallContext::limits() const {
  const std::scoped_lock lock(mutex_);
  return limits_;
}

void CallContext::remove(const CollectiveListener& listener) noexcept {
  const auto found = std::ranges::find(listeners_, &listener);
  if (found == listeners_.end()) return;
  if (calling_ > 0) {
    *found = nullptr;
  } else {
    listeners_.erase(found);
  }
}

template <typename Call>
bool CallContext::any_listener(const Call& call) {
  /// Listeners removed meanwhile leave the list when the outermost call ends, however it ends.
  struct Calling {
    explicit Calling(CallContext& of) : context(of) { ++context.calling_; }
    Calling(const Calling&) = delete;
    Calling& operator=(const Calling&) = delete;
    ~Calling() {
      if (--context.calling_ == 0) std::erase(context.listeners_, nullptr);
    }
    CallContext& context;
  };
  const Calling calling(*this);
  bool found = false;
  const std::size_t count = listeners_.size();
  for (std::size_t i = 0; i < count && !found; ++i) {
    found = listeners_[i] != nullptr && call(*listeners_[i]);
  }
  return found;
}

template <typename Call>
void CallContext::each_listening(const Call& call) {
  any_listener([&](CollectiveListener& listener) {
    if (listener.listens()) call(listener);
    return false;
  });
}

bool CallContext::has_listener() noexcept {
  return any_listener([](CollectiveListener& listener) { return listener.listens(); });
}

void CallContext::submitting(const CollectiveRecord& record, const CollectiveBackend& group,
                             Stream& stream) {
  each_listening([&](CollectiveListener& each) { each.submitting(record, group, stream); });
}

void CallContext::notify(const CollectiveRecord& record, const Mark& begin,
                         const Mark& end) noexcept {
  each_listening([&](CollectiveListener& each) { each.collective(record, begin, end); });
}

void CallContext::host_call(const CollectiveBackend& group, std::string_view name) noexcept {
  each_listening([&](CollectiveListener& each) { each.host_call(group, name); });
}

void CallContext::host_call_ended(const CollectiveBackend& group) noexcept {
  each_listening([&](CollectiveListener& each) { each.host_call_ended(group); });
}

void CallContext::split(const CollectiveBackend& group, const CollectiveBackend& part) noexcept {
  each_listening([&](CollectiveListener& each) { each.split(group, part); });
}

}  // namespace zero
