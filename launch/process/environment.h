// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

namespace zero {

/// Looks up an environment variable; nothing if the variable is not set or is empty.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

inline Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  };
}

}  // namespace zero
