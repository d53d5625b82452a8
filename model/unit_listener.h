// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "device/view.h"
#include "engine/schedule.h"
#include "ops/op_listener.h"

namespace zero {

/// Is notified of a model's operations, and of the units that they belong to.
class UnitListener : public OpListener {
 public:
  /// Later work belongs to this phase of a unit. Its lease is acquired next; backward that follows
  /// recompute in one lease is told within it.
  virtual void unit(std::string_view name, Phase phase) = 0;
  /// The model is about to use this activation, `layer` the block that it belongs to or -1: names
  /// the views of later touches() and moves() that lie in it.
  virtual void tensor(std::string_view /*name*/, std::int64_t /*layer*/, const View& /*values*/) {}
  /// Whether to notify of operations too. Passes whose parts need no notice may be replayed as
  /// graphs.
  virtual bool hears_operations() const { return true; }
};

/// Is notified of units, phases and tensors alone.
class UnitsOnlyListener : public UnitListener {
 public:
  bool hears_operations() const final { return false; }
  void begin(const OpCost& /*cost*/) final {}
  void end() noexcept final {}
};

/// Several listeners as one: tells each of them, in order. Those that do not hear operations are
/// told of units and tensors alone.
class UnitListeners final : public UnitListener {
 public:
  /// Must outlive this object.
  void add(UnitListener& listener) {
    all_.push_back(&listener);
    if (listener.hears_operations()) hearing_.push_back(&listener);
  }
  bool empty() const { return all_.empty(); }

  void unit(std::string_view name, Phase phase) override {
    for (UnitListener* each : all_) each->unit(name, phase);
  }
  void tensor(std::string_view name, std::int64_t layer, const View& values) override {
    for (UnitListener* each : all_) each->tensor(name, layer, values);
  }
  bool hears_operations() const override { return !hearing_.empty(); }
  void begin(const OpCost& cost) override {
    for (UnitListener* each : hearing_) each->begin(cost);
  }
  void end() noexcept override {
    for (UnitListener* each : hearing_) each->end();
  }
  void touches(const View& values, Access access) override {
    for (UnitListener* each : hearing_) each->touches(values, access);
  }
  void copies(const View& from, const View& to) override {
    for (UnitListener* each : hearing_) each->copies(from, to);
  }
  void moves(const View& from, const View& to) override {
    for (UnitListener* each : hearing_) each->moves(from, to);
  }

 private:
  std::vector<UnitListener*> all_{};
  std::vector<UnitListener*> hearing_{};  // those of them that hear operations
};

}  // namespace zero
