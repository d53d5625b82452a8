// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/memory_feed.h"

#include <algorithm>
#include <string>
#include <utility>

namespace zero {

MemoryFeed::MemoryFeed(Device& device) : device_(device) {
  const MemorySnapshot snapshot = device.ledger().snapshot();
  figures_ = {.now = snapshot.current,
              .peak = snapshot.current,
              .total = snapshot.total,
              .peak_total = snapshot.total};
  device.ledger().observe([this](const MemoryEvent& event) { hear(event); });
}

MemoryFeed::~MemoryFeed() { device_.ledger().observe({}); }

void MemoryFeed::listen(Listener listener) {
  const std::lock_guard lock(mutex_);
  listeners_.push_back(std::move(listener));
}

MemoryFigures MemoryFeed::take() {
  const std::lock_guard lock(mutex_);
  const MemoryFigures taken = figures_;
  figures_.peak = figures_.now;
  figures_.peak_total = figures_.total;
  return taken;
}

void MemoryFeed::hear(const MemoryEvent& event) {
  const std::lock_guard lock(mutex_);
  const auto c = static_cast<std::size_t>(event.memory_class);
  figures_.now[c] += event.bytes;
  figures_.peak[c] = std::max(figures_.peak[c], figures_.now[c]);
  figures_.total = event.total;
  figures_.peak_total = std::max(figures_.peak_total, event.total);
  for (const Listener& listener : listeners_) listener(event, figures_.now);
}

nlohmann::ordered_json memory_json(const MemoryFigures& figures, std::int64_t reserved,
                                   const MemoryCapacity& capacity) {
  nlohmann::ordered_json json;
  for (const MemoryClass c : all_memory_classes()) {
    const auto i = static_cast<std::size_t>(c);
    if (figures.peak[i] == 0) continue;
    json[std::string(name_of(c))] = {{"now", figures.now[i]}, {"peak", figures.peak[i]}};
  }
  json["total"] = figures.total;
  json["peak"] = figures.peak_total;
  json["reserved"] = reserved;
  if (capacity.total > 0) json["free"] = capacity.free;
  return json;
}

}  // namespace zero
