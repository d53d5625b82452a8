// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "collectives/listener.h"
#include "collectives/wait_limits.h"

namespace zero {

/// State shared by a rank's communicator and all splits of it: wait limits, current step and
/// listeners. Thread-safe, except for the listeners, which belong to the host thread that issues
/// the collectives.
class CallContext {
 public:
  static constexpr std::int64_t kNoStep = -1;

  /// Throws zero::Error if a limit is negative, or the timeout comes before the warning.
  void set_limits(WaitLimits limits);
  std::shared_ptr<const WaitLimits> limits() const;
  /// Whether there is a WaitLimits::disk_phase, without a lock.
  bool disk_decides() const { return disk_decides_.load(std::memory_order_relaxed); }

  void set_step(std::int64_t step) { step_.store(step, std::memory_order_relaxed); }
  std::int64_t step() const { return step_.load(std::memory_order_relaxed); }

  /// Listeners may add and remove listeners while they are called: an added one hears of the next
  /// collective, a removed one of nothing more.
  void add(CollectiveListener& listener) { listeners_.push_back(&listener); }
  /// Before all others; not while listeners are called.
  void add_first(CollectiveListener& listener) { listeners_.insert(listeners_.begin(), &listener); }
  void remove(const CollectiveListener& listener) noexcept;
  /// Whether any listener wants a report of the next collective.
  bool has_listener() noexcept;
  /// The calls of CollectiveListener by these names, to the listeners that want a report.
  void submitting(const CollectiveRecord& record, const CollectiveBackend& group, Stream& stream);
  void host_call(const CollectiveBackend& group, std::string_view name) noexcept;
  void host_call_ended(const CollectiveBackend& group) noexcept;
  void split(const CollectiveBackend& group, const CollectiveBackend& part) noexcept;
  /// Reports a collective to the listeners that want it.
  void notify(const CollectiveRecord& record, const Mark& begin, const Mark& end) noexcept;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const WaitLimits> limits_ = std::make_shared<const WaitLimits>();
  std::atomic<bool> disk_decides_{false};
  std::atomic<std::int64_t> step_{kNoStep};
  /// Calls call(listener) for each of the listeners, until it returns true; returns whether it did.
  template <typename Call>
  bool any_listener(const Call& call);
  /// Calls call(listener) for each of the listeners that want a report.
  template <typename Call>
  void each_listening(const Call& call);

  std::vector<CollectiveListener*> listeners_;  // null: removed while listeners are called
  int calling_ = 0;                             // listeners are being called, so many times nested
};

}  // namespace zero
