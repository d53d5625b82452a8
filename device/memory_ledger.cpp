// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/memory_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace zero {
namespace {

constexpr std::array<std::string_view, kMemoryClasses> kNames{
    "parameters",  "gathered",      "gradients", "optimizer",
    "activations", "communication", "staging",   "other"};

std::string key_of(MemoryClass memory_class, std::string_view label) {
  std::string key(name_of(memory_class));
  key += '/';
  key += label;
  return key;
}

}  // namespace

std::string_view name_of(MemoryClass memory_class) {
  return kNames.at(static_cast<std::size_t>(memory_class));
}

std::array<MemoryClass, kMemoryClasses> all_memory_classes() {
  std::array<MemoryClass, kMemoryClasses> classes{};
  for (std::size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<MemoryClass>(i);
  return classes;
}

std::string listed(const BytesByClass& bytes) {
  std::string text;
  for (const MemoryClass c : all_memory_classes()) {
    const std::int64_t own = bytes[static_cast<std::size_t>(c)];
    if (own == 0) continue;
    fmt::format_to(std::back_inserter(text), "{}{} {}", text.empty() ? "" : ", ", name_of(c), own);
  }
  return text.empty() ? "nothing" : text;
}

void MemoryLedger::charge(MemoryClass memory_class, std::string_view label, std::int64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  now_.labels[key_of(memory_class, label)] += bytes;
  const auto c = static_cast<std::size_t>(memory_class);
  now_.current[c] += bytes;
  now_.peak[c] = std::max(now_.peak[c], now_.current[c]);
  ++allocations_;
}

void MemoryLedger::release(MemoryClass memory_class, std::string_view label,
                           std::int64_t bytes) noexcept {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  now_.current[static_cast<std::size_t>(memory_class)] -= bytes;
  const auto entry = now_.labels.find(key_of(memory_class, label));
  if (entry == now_.labels.end()) return;
  entry->second -= bytes;
  if (entry->second == 0) now_.labels.erase(entry);
}

MemorySnapshot MemoryLedger::snapshot() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

std::int64_t MemoryLedger::allocations() const {
  const std::lock_guard lock(mutex_);
  return allocations_;
}

}  // namespace zero
