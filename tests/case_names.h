// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <ostream>
#include <string>

#include "base/dtype.h"

namespace zero {

/// How GoogleTest prints a data type.
inline void PrintTo(DType dtype, std::ostream* out) { *out << name_of(dtype); }

namespace testing {

/// Names a case of a parameterized test by its values: (0, fp32) becomes 0_fp32.
inline constexpr auto kCaseName = [](const auto& info) {
  std::string name;
  for (const char c : ::testing::PrintToString(info.param)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
    if (c == ' ' || c == '_') name += '_';
  }
  return name;
};

}  // namespace testing
}  // namespace zero
