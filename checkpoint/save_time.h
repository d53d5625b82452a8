// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

#include "engine/engine_states.h"

namespace zero {

/// The time of a save, and the part of it that training is held up: while an Exposed lives, and
/// what the engine counts for its reader. In seconds.
class SaveTime {
 public:
  explicit SaveTime(const EngineStates& states) : states_(states) {}

  void begin() {
    begun_ = now();
    exposed_ = 0;
    of_reader_ = states_.save_seconds();
  }
  double total() const { return now() - begun_; }
  /// At most `total`: two readings of clocks are added up.
  double exposed(double total) const {
    const double lasting = exposing_ > 0 ? clock() - exposed_from_ : 0;
    return std::min(exposed_ + states_.save_seconds() - of_reader_ + lasting, total);
  }

  class Exposed {
   public:
    explicit Exposed(SaveTime& time) : time_(time) {
      if (time_.exposing_++ == 0) time_.exposed_from_ = time_.clock();
    }
    ~Exposed() {
      if (--time_.exposing_ == 0) time_.exposed_ += time_.clock() - time_.exposed_from_;
    }
    Exposed(const Exposed&) = delete;
    Exposed& operator=(const Exposed&) = delete;

   private:
    SaveTime& time_;
  };

 private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  /// Without the time that the engine counts.
  double clock() const { return now() - states_.save_seconds(); }

  const EngineStates& states_;
  double begun_ = 0;         // of now()
  double of_reader_ = 0;     // EngineStates::save_seconds() when the save began
  int exposing_ = 0;         // Exposed that live
  double exposed_ = 0;       // while one lived
  double exposed_from_ = 0;  // of clock()
};

}  // namespace zero
