// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launch/faults/phase_listener.h"
#include "model/unit_listener.h"

namespace zero {

/// Tells a run's phase listeners of its phases. Hears of the model's units, by which it tells
/// backward from forward. Used by the rank's host thread.
class RunPhases final : public UnitsOnlyListener {
 public:
  /// Tells of "start". The listeners must outlive this object.
  explicit RunPhases(std::vector<PhaseListener*> listeners);

  /// A phase begins.
  void at(std::int64_t step, std::string_view name);
  const std::string& name() const { return name_; }  ///< of the newest phase

  void unit(std::string_view name, Phase phase) override;

 private:
  std::vector<PhaseListener*> listeners_;
  std::int64_t step_ = -1;
  std::string name_{};
};

}  // namespace zero
