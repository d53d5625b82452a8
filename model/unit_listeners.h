// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "model/unit_listener.h"

namespace zero {

/// Several listeners as one: tells each of them, in order. Those that do not hear operations are
/// told of units and tensors alone.
class UnitListeners final : public UnitListener {
 public:
  /// Must outlive this object.
  void add(UnitListener& listener);
  bool empty() const { return all_.empty(); }

  void unit(std::string_view name, Phase phase) override;
  void tensor(std::string_view name, std::int64_t layer, const View& values) override;
  bool hears_operations() const override { return !hearing_.empty(); }
  void begin(const OpCost& cost) override;
  void end() noexcept override;
  void touches(const View& values, Access access) override;
  void copies(const View& from, const View& to) override;
  void moves(const View& from, const View& to) override;

 private:
  std::vector<UnitListener*> all_{};
  std::vector<UnitListener*> hearing_{};  // those of them that hear operations
};

}  // namespace zero
