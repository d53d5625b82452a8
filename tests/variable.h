// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace zero::testing {

/// Sets a variable of this process, "NAME=value", and restores it at the end of the scope.
class Variable {
 public:
  explicit Variable(const std::string& text) : name_(text.substr(0, text.find('='))) {
    if (const char* const value = std::getenv(name_.c_str())) before_ = value;
    ::setenv(name_.c_str(), text.substr(name_.size() + 1).c_str(), 1);
  }
  ~Variable() {
    before_ ? ::setenv(name_.c_str(), before_->c_str(), 1) : ::unsetenv(name_.c_str());
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_{};
};

}  // namespace zero::testing
