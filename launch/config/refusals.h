// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace zero {

class Configuration;

/// An error of a configuration to which --set has an answer.
class Refusal : public Error {
 public:
  /// `sets`: "key=value" as people type them, with which the next start has no such error. A word
  /// in capitals as a value is for the user to replace.
  Refusal(const std::string& message, std::vector<std::string> sets)
      : Error(message), sets_(std::move(sets)) {}
  const std::vector<std::string>& sets() const { return sets_; }

 private:
  std::vector<std::string> sets_;
};

/// Calls `work`, whose errors tell of `place` first.
template <typename Work>
void at_place(const std::string& place, const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    fail("{}: {}", place, error.what());
  }
}

/// What a configuration is refused for, all at once: a user mends a file in one round.
class Refusals {
 public:
  /// Calls `check()` and keeps the error that it throws. Returns whether it threw none.
  template <typename Check>
  bool collect(const Check& check) {
    try {
      check();
      return true;
    } catch (const Refusal& refusal) {
      add(refusal);
      return false;
    } catch (const Error& error) {
      add(error.what());
      return false;
    }
  }
  void add(const Refusal& refusal) { add(refusal.what(), refusal.sets()); }
  void add(std::string message, std::vector<std::string> sets = {}) {
    items_.push_back({std::move(message), std::move(sets)});
  }
  bool empty() const { return items_.empty(); }

  /// Throws zero::Error with the only message, or with all of them, a line each below the file of
  /// `values`, then the answers as one line to copy; keys are named as the file has them. Does
  /// nothing if there is none.
  void raise(const Configuration& values) const;

 private:
  struct Item {
    std::string message;
    std::vector<std::string> sets;
  };
  std::string answer() const;

  std::vector<Item> items_;
};

}  // namespace zero
