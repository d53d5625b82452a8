// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// A log as a series: a place a step.
#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/json_fields.h"
#include "launch/memory/json_lines.h"
#include "launch/memory/memory_series.h"

namespace zero {
namespace {

/// Takes the lines of a log, in order.
class LogReader {
 public:
  explicit LogReader(const std::string& path) {
    series_.kind = MemorySeries::Kind::log;
    series_.path = path;
    for (const MemoryClass c : all_memory_classes()) series_.labels.push_back({.memory_class = c});
  }

  void take(JsonFields& fields) {
    if (fields.has("final") || fields.has("ended_by")) series_.whole = true;
    if (!fields.has("step")) return;
    seconds_ += fields.number("step_seconds");
    JsonFields memory = fields.object("memory");
    if (!memory.has("total")) {
      fields.refuse("memory",
                    "is missing; expected bytes by class: an earlier version wrote the "
                    "log");
    }
    const std::int64_t step = fields.count("step");
    if (!series_.places.empty() && step <= series_.places.back().step) {
      fields.refuse("step", "found {}, expected more than {}, that of the line before", step,
                    series_.places.back().step);
    }
    series_.places.push_back(
        {.seconds = seconds_, .step = step, .phase = "step", .peak = memory.count("peak")});
    take_classes(memory);
  }

  MemorySeries series() && {
    ZERO_CHECK(!series_.places.empty(), "{}: has no line of a step, expected a log of zero_train",
               series_.path);
    return std::move(series_);
  }

 private:
  void take_classes(JsonFields& memory) {
    constexpr std::int64_t kMost = std::int64_t{1} << 56;  // eight of them do not overflow
    for (const MemoryClass c : all_memory_classes()) {
      const std::string name(name_of(c));
      JsonFields own = memory.object(name);
      const std::int64_t bytes = own.has("now") ? own.count("now") : 0;
      if (bytes > kMost) own.refuse("now", "found {}, expected at most {}", bytes, kMost);
      const std::int64_t more = bytes - state_.current_of(c);
      if (more == 0) continue;
      state_.current[static_cast<std::size_t>(c)] = bytes;
      series_.changes.push_back({.seconds = seconds_,
                                 .place = static_cast<std::int32_t>(series_.places.size()) - 1,
                                 .label = static_cast<std::int32_t>(c),
                                 .bytes = more});
      total_ += more;
    }
    const std::int64_t total = memory.count("total");
    if (total != total_) {
      memory.refuse("total", "found {}, but the classes sum to {}", total, total_);
    }
  }

  MemorySeries series_;
  MemorySnapshot state_;
  std::int64_t total_ = 0;
  double seconds_ = 0;
};

}  // namespace

MemorySeries read_memory_log(const std::string& path) {
  JsonLines lines(path);
  LogReader reader(path);
  while (auto fields = lines.next()) reader.take(*fields);
  return std::move(reader).series();
}

MemorySeries read_memory(const std::string& path) {
  JsonLines lines(path);
  const auto first = lines.next();
  ZERO_CHECK(first, "{}: is empty, expected a trace (run.memory_trace) or a log (run.log)", path);
  return first->lists("memory_trace") ? read_memory_trace(path) : read_memory_log(path);
}

}  // namespace zero
