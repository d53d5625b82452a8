// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/listed_bytes.h"

#include <fmt/format.h>

#include <iterator>

namespace zero {

std::string listed(const BytesByClass& bytes) {
  std::string text;
  for (const MemoryClass c : all_memory_classes()) {
    const std::int64_t own = bytes[static_cast<std::size_t>(c)];
    if (own == 0) continue;
    fmt::format_to(std::back_inserter(text), "{}{} {}", text.empty() ? "" : ", ", name_of(c), own);
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace zero
