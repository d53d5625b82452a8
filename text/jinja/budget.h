// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/error.h"
#include "text/jinja/value.h"

namespace zero::jinja {

/// What a template may use, so that no template runs for ever or takes all memory: a few seconds of
/// work, and memory by the size of its messages.
class Budget {
 public:
  explicit Budget(std::size_t bytes_given) : bytes_left_(kMostBytes + 256 * bytes_given) {}

  /// One step, and the reading of so many bytes.
  void work(std::size_t bytes = 0) {
    const std::size_t steps = 1 + bytes / 64;
    ZERO_CHECK(steps <= steps_left_, "the template works for more than {} steps", kSteps);
    steps_left_ -= steps;
  }
  /// Bytes of values that are made, freed or not; call before they are.
  void make(std::size_t bytes) {
    work(bytes);
    ZERO_CHECK(bytes <= bytes_left_, "the template makes texts and lists of too many bytes");
    bytes_left_ -= bytes;
  }
  /// A search for `what` bytes in `in`.
  void search(std::size_t in, std::size_t what) { work(in * (1 + what / 64)); }

  /// How deep expressions, statements and macros are within each other.
  class Level {
   public:
    explicit Level(Budget& budget) : budget_(budget) {
      ZERO_CHECK(budget_.depth_ < kDeepest,
                 "the template's macros and expressions are nested deeper than {}", kDeepest);
      ++budget_.depth_;
    }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --budget_.depth_; }

   private:
    Budget& budget_;
  };

  static constexpr std::size_t kSteps = 5'000'000;
  static constexpr int kDeepest = 400;

 private:
  std::size_t steps_left_ = kSteps;
  std::size_t bytes_left_;
  int depth_ = 0;
};

}  // namespace zero::jinja
