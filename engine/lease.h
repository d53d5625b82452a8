// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "device/view.h"

namespace zero {

class EngineCore;

/// RAII proof that a unit's full parameters are present: gathered when it is taken (the compute
/// stream waits), released when it ends. Move-only. Views are valid until the lease ends and are
/// parts of the gathered buffer: nothing was copied. When it ends by an exception no collective is
/// started.
class ParameterLease {
 public:
  ParameterLease(ParameterLease&& other) noexcept;
  ParameterLease& operator=(ParameterLease&&) = delete;
  ~ParameterLease();

  /// The full parameter, in the compute dtype; throws zero::Error naming the unit's parameters when
  /// there is none of that name.
  View operator[](std::string_view parameter) const;
  /// By position in the unit's list.
  View at(int index) const;
  /// Calls `body`, which submits to the compute stream what is the same in every micro-batch: the
  /// same work on the same memory, no event, nothing of another stream; what else it does must not
  /// matter when it is left out. A device that can keeps the work for this place in the order (the
  /// first, second, ... repeat of the lease) and submits it without `body` from the third time on
  /// (Stream::repeat, EngineOptions::graphs); in checked mode it calls `body` all the same and
  /// compares. After memory of the caller's has moved: Engine::forget_passes().
  void repeat(const std::function<void()>& body);

 private:
  friend class EngineCore;
  ParameterLease(EngineCore& core, int step);
  EngineCore* core_;
  int step_;                  ///< compute step in the schedule
  int unwinding_;             ///< std::uncaught_exceptions() when taken
  std::size_t repeated_ = 0;  ///< calls of repeat()
};

/// As ParameterLease, with gradients to write. The end of a unit's last GradientLease in a
/// micro-batch starts its reduction.
class GradientLease {
 public:
  GradientLease(GradientLease&& other) noexcept;
  GradientLease& operator=(GradientLease&&) = delete;
  ~GradientLease();

  View parameter(std::string_view name) const;
  View parameter(int index) const;
  /// Where this micro-batch's gradient of a parameter goes: full size; the compute dtype, or fp32
  /// where the unit is used more than once. Empty for frozen parameters. A gradient that is never
  /// asked for counts as zero.
  View gradient(std::string_view name) const;
  View gradient(int index) const;
  /// True when gradient(...) already holds an earlier use's part and must be added to; false when
  /// it must be overwritten.
  bool accumulates() const;
  /// As ParameterLease::repeat(). Gradients that `body` asked for count as asked for when it is
  /// left out, too.
  void repeat(const std::function<void()>& body);

 private:
  friend class EngineCore;
  GradientLease(EngineCore& core, int step);
  EngineCore* core_;
  int step_;
  int unwinding_;
  std::size_t repeated_ = 0;
};

}  // namespace zero
