// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/memory_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/checked_math.h"

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

std::int64_t DeviceBytes::in_pages() const {
  std::int64_t bytes = adopted;
  for (const std::int64_t arena : arenas) bytes += round_up(arena, kPage);
  return bytes;
}

std::int64_t sum_of(const BytesByClass& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

std::string listed(const BytesByClass& bytes) {
  std::string text;
  for (const MemoryClass c : all_memory_classes()) {
    const std::int64_t own = at(bytes, c);
    if (own == 0) continue;
    fmt::format_to(std::back_inserter(text), "{}{} {}", text.empty() ? "" : ", ", name_of(c), own);
  }
  return text.empty() ? "nothing" : text;
}

void MemoryLedger::charge(MemoryClass memory_class, std::string_view label, std::int64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  now_.labels[key_of(memory_class, label)] += bytes;
  std::int64_t& current = at(now_.current, memory_class);
  std::int64_t& peak = at(now_.peak, memory_class);
  current += bytes;
  peak = std::max(peak, current);
  now_.total += bytes;
  now_.peak_total = std::max(now_.peak_total, now_.total);
  now_.recent_peak = std::max(now_.recent_peak, now_.total);
  ++allocations_;
  if (observer_) observer_({memory_class, label, bytes, now_.total});
}

void MemoryLedger::release(MemoryClass memory_class, std::string_view label,
                           std::int64_t bytes) noexcept {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  at(now_.current, memory_class) -= bytes;
  now_.total -= bytes;
  const auto entry = now_.labels.find(key_of(memory_class, label));
  if (entry != now_.labels.end()) {
    entry->second -= bytes;
    if (entry->second == 0) now_.labels.erase(entry);
  }
  if (observer_) observer_({memory_class, label, -bytes, now_.total});
}

MemorySnapshot MemoryLedger::snapshot() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

std::int64_t MemoryLedger::allocations() const {
  const std::lock_guard lock(mutex_);
  return allocations_;
}

void MemoryLedger::begin_peak() {
  const std::lock_guard lock(mutex_);
  now_.recent_peak = now_.total;
}

void MemoryLedger::observe(Observer observer) {
  const std::lock_guard lock(mutex_);
  observer_.swap(observer);  // the one before is destroyed after the lock's end
}

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
