// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/memory_label.h"

namespace zero {

std::string MemoryLabel::key() const { return std::string(name_of(memory_class)) + "/" + name; }

MemoryLabel MemoryLabel::of_key(std::string_view key) {
  const std::size_t slash = key.find('/');
  const auto known = memory_class_from_name(key.substr(0, slash));
  if (!known || slash == std::string_view::npos) return {.name = std::string(key)};
  return {*known, std::string(key.substr(slash + 1))};
}

std::optional<MemoryClass> memory_class_from_name(std::string_view name) {
  for (const MemoryClass c : all_memory_classes()) {
    if (name_of(c) == name) return c;
  }
  return std::nullopt;
}

}  // namespace zero
