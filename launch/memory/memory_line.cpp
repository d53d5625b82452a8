// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory/memory_line.h"

#include <algorithm>
#include <string>

namespace zero {

void MemoryLine::add(const MemoryEvent& event) {
  std::int64_t& own = at(now, event.memory_class);
  std::int64_t& most = at(peak, event.memory_class);
  own += event.bytes;
  most = std::max(most, own);
  total = event.total;
  peak_total = std::max(peak_total, total);
}

nlohmann::ordered_json MemoryLine::json() const {
  nlohmann::ordered_json json;
  for (const MemoryClass c : all_memory_classes()) {
    if (at(peak, c) == 0) continue;
    json[std::string(name_of(c))] = {{"now", at(now, c)}, {"peak", at(peak, c)}};
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
    std::int64_t& now = at(found.now, c);
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
