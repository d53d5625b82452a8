// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

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

 private:
  friend class EngineCore;
  ParameterLease(EngineCore& core, int step);
  EngineCore* core_;
  int step_;       ///< compute step in the schedule
  int unwinding_;  ///< std::uncaught_exceptions() when taken
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

 private:
  friend class EngineCore;
  GradientLease(EngineCore& core, int step);
  EngineCore* core_;
  int step_;
  int unwinding_;
};

}  // namespace zero
