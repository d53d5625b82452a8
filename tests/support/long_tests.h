// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string_view>

namespace zero::testing {

/// Whether tests that take samples take all instead, as tests/long.sh asks: ZERO_LONG_TESTS=1.
inline bool long_tests() {
  const char* value = std::getenv("ZERO_LONG_TESTS");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace zero::testing
