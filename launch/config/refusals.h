// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace zero {

/// What a configuration is refused for, all at once: a user mends a file in one round.
class Refusals {
 public:
  /// Calls `check()` and keeps the error that it throws. Returns whether it threw none.
  template <typename Check>
  bool collect(const Check& check) {
    try {
      check();
      return true;
    } catch (const Error& error) {
      add(error.what());
      return false;
    }
  }
  void add(std::string message) { messages_.push_back(std::move(message)); }
  const std::vector<std::string>& messages() const { return messages_; }

  /// Throws zero::Error with the only message, or with all of them, a line each below `source`;
  /// does nothing if there is none.
  void raise(const std::string& source) const;

 private:
  std::vector<std::string> messages_;
};

}  // namespace zero
