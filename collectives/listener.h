// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "collectives/operation.h"
#include "device/stream.h"

namespace zero {

class CallContext;
class CollectiveBackend;
class Communicator;

/// One collective, as called.
struct CollectiveRecord {
  Operation operation = Operation::barrier;
  Operation counted_as = Operation::barrier;
  std::string purpose;
  DType dtype = DType::fp32;
  std::int64_t total_bytes = 0;  ///< payload over all slices
  std::int64_t sent_bytes = 0;   ///< bytes that one rank sends (Communicator::sent_bytes)

  friend bool operator==(const CollectiveRecord&, const CollectiveRecord&) = default;
};

/// Receives a report of each collective, on the host thread that issues it: a trace, a flight
/// recorder, a test.
class CollectiveListener {
 public:
  virtual ~CollectiveListener() = default;
  /// Whether to report the next collective; called before each one.
  virtual bool listens() const noexcept = 0;
  /// Called before the collective is submitted to `stream`: work that the listener submits there
  /// runs before it. `group` is the backend of the communicator, the same in all calls of a group.
  /// If this throws, the collective is not submitted, and the caller gets the exception.
  virtual void submitting(const CollectiveRecord& /*record*/, const CollectiveBackend& /*group*/,
                          Stream& /*stream*/) {}
  /// Called after the collective has been submitted; the marks on its stream later give the times
  /// at which it began and ended.
  virtual void collective(const CollectiveRecord& record, Mark begin, Mark end) noexcept = 0;
  /// A call of the group that blocks its ranks' hosts, as "split", begins, and ends later, also by
  /// an exception.
  virtual void host_call(const CollectiveBackend& /*group*/, std::string_view /*name*/) noexcept {}
  virtual void host_call_ended(const CollectiveBackend& /*group*/) noexcept {}
  /// A split of `group` has put this rank and others into `part`.
  virtual void split(const CollectiveBackend& /*group*/,
                     const CollectiveBackend& /*part*/) noexcept {}
};

/// Registers `listener`, for the lifetime of this object, with a communicator, the one it was split
/// from and all splits of it. Several listeners may be registered at once, also by a listener while
/// it is called. World 1 moves nothing and reports nothing. Used by the communicator's host thread.
class Listening {
 public:
  /// The listener's turn among those registered: behind them, or before all. The latter is not for
  /// a listener that is being called.
  enum class Turn : std::uint8_t { last, first };
  /// `listener` must outlive this.
  Listening(const Communicator& communicator, CollectiveListener& listener, Turn turn = Turn::last);
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  ~Listening();

 private:
  std::shared_ptr<CallContext> context_;
  CollectiveListener& listener_;
};

}  // namespace zero
