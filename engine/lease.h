// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "device/view.h"

namespace zero {

class EngineCore;
struct ScheduleStep;

/// A compute step of the schedule between its start and its end. Move-only. A lease that was moved
/// from, or whose engine was destroyed, throws zero::Error from every member.
class Lease {
 public:
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&&) = delete;

  /// Calls `body`, which must submit the same work on the same memory to the compute stream in
  /// every micro-batch, no events, and nothing to another stream. Other effects of `body` may be
  /// skipped. A device with graph capture (CUDA) captures the work for this place in the order (the
  /// first, second, ... repeat of the lease) and replays it without `body` from the third time on
  /// (Stream::repeat, EngineOptions::graphs); gradients that `body` asked for count as asked for
  /// then too. In checked mode the engine calls `body` all the same and compares. If memory of the
  /// caller's has moved, call Engine::discard_graphs().
  void repeat(const std::function<void()>& body);

  /// The full parameter, by position in the unit's list, in the compute dtype.
  View at(int index) const;

 protected:
  friend class EngineCore;  // takes it, and ends it with itself
  Lease(EngineCore& core, int compute_step);
  ~Lease();
  int find(std::string_view parameter) const;
  EngineCore& core() const;
  const ScheduleStep& step() const;

 private:
  EngineCore* core_;                ///< null: moved from
  std::weak_ptr<const void> life_;  ///< of the engine
  const ScheduleStep* step_;
  int compute_step_;          ///< index of step_ in the schedule
  int unwinding_;             ///< std::uncaught_exceptions() when taken
  std::size_t repeated_ = 0;  ///< calls of repeat()
};

/// RAII proof that a unit's full parameters are present: gathered when it is taken (the compute
/// stream waits), released when it ends. Views are valid until the lease ends and are parts of the
/// gathered buffer: nothing was copied. If the lease ends by an exception, it starts no collective,
/// and every later call of the engine throws that its micro-batch is incomplete.
class ParameterLease : public Lease {
 public:
  /// The full parameter, in the compute dtype; throws zero::Error naming the unit's parameters if
  /// there is none of that name.
  View operator[](std::string_view parameter) const;

 private:
  using Lease::Lease;
};

/// A ParameterLease with gradients to write. The end of a unit's last GradientLease in a
/// micro-batch starts the unit's reduction.
class GradientLease : public Lease {
 public:
  View parameter(std::string_view name) const;
  View parameter(int index) const { return at(index); }
  /// The memory for this micro-batch's gradient of a parameter: full size; the compute dtype, or
  /// fp32 if the unit is used more than once in backward. Empty for frozen parameters. A gradient
  /// that is never asked for counts as zero.
  View gradient(std::string_view name) const;
  View gradient(int index) const;
  /// True: gradient(...) already holds an earlier use's part and must be added to. False: it must
  /// be overwritten.
  bool accumulates() const;

 private:
  using Lease::Lease;
};

}  // namespace zero
