// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <random>
#include <string>

namespace zero {

/// `digits` hexadecimal digits that the system draws: a name or a secret that no other job has.
inline std::string random_hex(std::size_t digits) {
  std::random_device random;
  std::string text;
  while (text.size() < digits) text += fmt::format("{:08x}", random());
  text.resize(digits);
  return text;
}

}  // namespace zero
