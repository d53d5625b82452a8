// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "device/memory_ledger.h"

namespace zero {

/// A class and the label of buffers of it.
struct MemoryLabel {
  MemoryClass memory_class = MemoryClass::other;
  std::string name{};
  auto operator<=>(const MemoryLabel&) const = default;

  /// "optimizer/h.0.master", as MemorySnapshot::labels has it.
  std::string key() const;
  /// Of a key; what begins with no class is of `other`.
  static MemoryLabel of_key(std::string_view key);
};

/// By key.
using BytesByLabel = std::map<std::string, std::int64_t>;

/// The class of that name.
std::optional<MemoryClass> memory_class_from_name(std::string_view name);

}  // namespace zero
