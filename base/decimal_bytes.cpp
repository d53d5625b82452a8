// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/decimal_bytes.h"

#include <fmt/format.h>

namespace zero {

std::string decimal_bytes(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value < 1e6) return fmt::format("{:.1f} kB", value / 1e3);
  return value < 1e9 ? fmt::format("{:.1f} MB", value / 1e6)
                     : fmt::format("{:.1f} GB", value / 1e9);
}

}  // namespace zero
