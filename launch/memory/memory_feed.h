// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "device/device.h"

namespace zero {

/// Bytes of a device's classes and of their sum, now and at their largest since an earlier moment.
struct MemoryFigures {
  BytesByClass now{};
  BytesByClass peak{};          ///< of each class alone: they peak at different times
  std::int64_t total = 0;       ///< of all classes
  std::int64_t peak_total = 0;  ///< the largest `total`
};

/// A ledger's charges and releases, passed on to all who ask: a ledger has one observer. Must end
/// before its device, and after the buffers whose release is to be heard.
class MemoryFeed {
 public:
  using Listener = std::function<void(const MemoryEvent& event, const BytesByClass& now)>;

  /// Becomes the observer of the device's ledger, with what is charged already. No other thread may
  /// charge the ledger meanwhile.
  explicit MemoryFeed(Device& device);
  MemoryFeed(const MemoryFeed&) = delete;
  MemoryFeed& operator=(const MemoryFeed&) = delete;
  ~MemoryFeed();

  /// Calls `listener` for each later event, one at a time, in their order, on the thread that
  /// charges or releases, with the ledger locked: it must not call the ledger, allocate from the
  /// device or throw.
  void listen(Listener listener);
  /// The figures since the last call, or the construction. Begins new peaks.
  MemoryFigures take();

  Device& device() { return device_; }

 private:
  void hear(const MemoryEvent& event);

  Device& device_;
  std::mutex mutex_;
  std::vector<Listener> listeners_;
  MemoryFigures figures_;
};

/// The field "memory" of a line of run.log: {"parameters": {"now": bytes, "peak": bytes}, ...} of
/// the classes that have or had any, "total" and "peak" of all, "reserved", and the device's "free"
/// where it is known.
nlohmann::ordered_json memory_json(const MemoryFigures& figures, std::int64_t reserved,
                                   const MemoryCapacity& capacity);

}  // namespace zero
