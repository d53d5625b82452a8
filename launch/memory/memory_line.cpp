// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/memory_line.h"

#include <algorithm>
#include <string>

#include "launch/memory/memory_text.h"

namespace zero {

void MemoryLine::add(const MemoryEvent& event) {
  const auto c = static_cast<std::size_t>(event.memory_class);
  now[c] += event.bytes;
  peak[c] = std::max(peak[c], now[c]);
  total = event.total;
  peak_total = std::max(peak_total, total);
}

nlohmann::ordered_json MemoryLine::json() const {
  nlohmann::ordered_json json;
  for (const MemoryClass c : all_memory_classes()) {
    const auto i = static_cast<std::size_t>(c);
    if (peak[i] > 0) json[std::string(name_of(c))] = {{"now", now[i]}, {"peak", peak[i]}};
  }
  json["total"] = total;
  json["peak"] = peak_total;
  json["reserved"] = reserved;
  if (free) json["free"] = *free;
  return json;
}

MemoryLine MemoryLine::of(JsonFields& line) {
  constexpr std::int64_t kMost = std::int64_t{1} << 56;  // eight of them do not overflow
  JsonFields memory = line.object("memory");
  if (!memory.has("total")) {
    line.refuse("memory", "is missing; expected bytes by class: an earlier version wrote the log");
  }
  MemoryLine found{.total = memory.count("total"), .peak_total = memory.count("peak")};
  for (const MemoryClass c : all_memory_classes()) {
    JsonFields own = memory.object(name_of(c));
    if (!own.has("now")) continue;
    std::int64_t& now = found.now[static_cast<std::size_t>(c)];
    now = own.count("now");
    if (now > kMost) own.refuse("now", "found {}, expected at most {}", now, kMost);
  }
  if (const std::int64_t sum = sum_of(found.now); sum != found.total) {
    memory.refuse("total", "found {}, but the classes sum to {}", found.total, sum);
  }
  if (memory.has("free")) found.free = memory.count("free");
  return found;
}

}  // namespace zero
