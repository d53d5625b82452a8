// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/dtype.h"
#include "collectives/operation.h"
#include "device/stream.h"

namespace zero {

class CallContext;
class Communicator;

/// One collective as the caller asked for it.
struct CollectiveRecord {
  Operation operation = Operation::barrier;
  Operation counted_as = Operation::barrier;
  std::string unit;
  DType dtype = DType::fp32;
  std::int64_t total_bytes = 0;  ///< payload over all slices
  std::int64_t sent_bytes = 0;   ///< what one rank sends (Communicator::sent_bytes)

  friend bool operator==(const CollectiveRecord&, const CollectiveRecord&) = default;
};

/// Hears of collectives, on the host thread that issues them: a trace, a flight recorder, a test.
class CollectiveListener {
 public:
  virtual ~CollectiveListener() = default;
  /// Asked before each collective: whether to report this one.
  virtual bool listens() const noexcept = 0;
  /// The collective has been submitted; the marks of its stream tell later when it ran.
  virtual void collective(const CollectiveRecord& record, Mark begin, Mark end) noexcept = 0;
};

/// As long as this lives, `listener` hears of the collectives of a communicator, of those it was
/// split from and of those split from it. Several may listen at once. At world 1, where nothing
/// moves, there is nothing to hear. Used by the communicator's host thread.
class Listening {
 public:
  /// `listener` must outlive this.
  Listening(const Communicator& communicator, CollectiveListener& listener);
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  ~Listening();

 private:
  std::shared_ptr<CallContext> context_;
  CollectiveListener& listener_;
};

}  // namespace zero
