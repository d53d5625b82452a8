// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// A trace as a series.
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/message_text.h"
#include "launch/memory/growth_watch.h"
#include "launch/memory/json_lines.h"
#include "launch/memory/memory_series.h"
#include "launch/memory/memory_trace_file.h"

namespace zero {
namespace {

/// The first line of a trace's file.
struct TraceHead {
  std::int64_t run = 0;
  std::int64_t part = 0;
  int rank = 0;
  int ranks = 1;
  std::int64_t device_bytes = 0;
};

TraceHead trace_head(JsonFields& fields) {
  const std::int64_t version = fields.integer("memory_trace");
  if (version != 1) {
    fields.refuse("memory_trace", "found version {}, expected 1: another version wrote it",
                  version);
  }
  return {.run = fields.integer("run"),
          .part = fields.count("part"),
          .rank = static_cast<int>(fields.count("rank")),
          .ranks = static_cast<int>(fields.count("ranks")),
          .device_bytes = fields.count("device_bytes")};
}

MemoryClass class_of(JsonFields& fields) {
  const std::string name = fields.text("class");
  for (const MemoryClass c : all_memory_classes()) {
    if (name_of(c) == name) return c;
  }
  fields.refuse("class", "found \"{}\", expected a class of memory such as \"optimizer\"",
                printable_line(name, 64));
}

/// Takes the lines of a trace's files, in order.
class TraceReader {
 public:
  explicit TraceReader(const std::string& path) { series_.path = path; }

  TraceHead read_file(const std::string& path) {
    JsonLines lines(path);
    std::optional<TraceHead> head;
    while (auto fields = lines.next()) {
      if (head) {
        take(*fields);
      } else {
        head = trace_head(*fields);
      }
    }
    ZERO_CHECK(head, "{}: is empty, expected a trace of run.memory_trace", path);
    return *head;
  }

  MemorySeries series(const TraceHead& head) && {
    ZERO_CHECK(!series_.places.empty(), "{}: has its first line alone, expected what is charged",
               series_.path);
    series_.rank = head.rank;
    series_.ranks = head.ranks;
    series_.device_bytes = head.device_bytes;
    for (MemorySeries::Label& label : series_.labels) label.unit = unit_of(label.name, units_);
    return std::move(series_);
  }

 private:
  void take(JsonFields& fields) {
    if (fields.has("memory_trace")) {
      fields.refuse("memory_trace",
                    "is the first line of a trace, but not the first of the file: two runs wrote "
                    "it");
    }
    if (fields.has("units")) {
      units_ = fields.texts("units");
      return;
    }
    move_to({.seconds = fields.number("t"),
             .step = fields.count("step"),
             .phase = fields.text("phase")},
            fields);
    if (fields.has("charged")) return take_charged(fields);
    if (fields.has("bytes")) return take_event(fields);
    if (fields.has("missed")) series_.missed += fields.count("missed");
    if (fields.has("end")) series_.whole = fields.flag("end");
  }

  void move_to(MemorySeries::Place place, const JsonFields& fields) {
    seconds_ = place.seconds;
    if (!series_.places.empty()) {
      const MemorySeries::Place& last = series_.places.back();
      if (place.step < last.step) {
        fields.refuse("step", "found {}, expected at least {}, that of the line before", place.step,
                      last.step);
      }
      if (place.step == last.step && place.phase == last.phase) return;
    }
    series_.places.push_back(std::move(place));
  }

  void take_event(JsonFields& fields) {
    const MemoryClass memory_class = class_of(fields);
    const std::int32_t label = label_of(memory_class, fields.text("label"));
    state_.labels.resize(series_.labels.size());
    change(label, bytes_of(fields, state_.labels[static_cast<std::size_t>(label)]));
    const std::int64_t total = fields.integer("total");
    if (total != state_.total) {
      fields.refuse("total",
                    "found {}, but the lines before and this one sum to {}: lines are "
                    "missing, or of another run",
                    total, state_.total);
    }
  }

  /// All that is charged at this point: what differs from the lines before is a change.
  void take_charged(JsonFields& fields) {
    std::vector<std::int64_t> charged(series_.labels.size());
    for (JsonFields& each : fields.objects("charged")) {
      const MemoryClass memory_class = class_of(each);
      const auto label = static_cast<std::size_t>(label_of(memory_class, each.text("label")));
      charged.resize(series_.labels.size());
      charged[label] = bytes_of(each, 0);
    }
    state_.labels.resize(series_.labels.size());
    for (std::size_t i = 0; i < charged.size(); ++i) {
      const std::int64_t more = charged[i] - state_.labels[i];
      if (more != 0) change(static_cast<std::int32_t>(i), more);
    }
  }

  /// The bytes of an event of a label that holds `held`. Sums of what is not negative, and together
  /// below the limit, cannot overflow.
  std::int64_t bytes_of(JsonFields& fields, std::int64_t held) const {
    constexpr std::int64_t kMost = std::int64_t{1} << 60;
    const std::int64_t bytes = fields.integer("bytes");
    if (bytes < -held) {
      fields.refuse("bytes", "found {}, but the label holds {} bytes", bytes, held);
    }
    if (bytes > kMost - state_.total) {
      fields.refuse("bytes", "found {}, expected at most {}", bytes, kMost - state_.total);
    }
    return bytes;
  }

  std::int32_t label_of(MemoryClass memory_class, const std::string& name) {
    const auto next = static_cast<std::int32_t>(series_.labels.size());
    const auto [entry, is_new] = ids_.try_emplace({memory_class, name}, next);
    if (is_new) series_.labels.push_back({.memory_class = memory_class, .name = name});
    return entry->second;
  }

  void change(std::int32_t label, std::int64_t bytes) {
    series_.changes.push_back({.seconds = seconds_,
                               .place = static_cast<std::int32_t>(series_.places.size()) - 1,
                               .label = label,
                               .bytes = bytes});
    state_.add(series_, series_.changes.back());
  }

  MemorySeries series_;
  MemoryState state_;
  double seconds_ = 0;
  std::vector<std::string> units_;
  std::map<std::pair<MemoryClass, std::string>, std::int32_t> ids_;
};

/// The first line of the earlier part of `path`; nothing if there is no such file.
std::optional<TraceHead> head_of_earlier_part(const std::string& path) {
  const std::string before = earlier_part(path);
  if (!std::filesystem::exists(before)) return std::nullopt;
  JsonLines lines(before);
  auto fields = lines.next();
  if (!fields) return std::nullopt;
  return trace_head(*fields);
}

}  // namespace

MemorySeries read_memory_trace(const std::string& path) {
  JsonLines lines(path);
  auto fields = lines.next();
  ZERO_CHECK(fields, "{}: is empty, expected a trace of run.memory_trace", path);
  const TraceHead head = trace_head(*fields);
  TraceReader reader(path);
  if (head.part > 0) {
    const std::optional<TraceHead> before = head_of_earlier_part(path);
    // Without it, or beside another run's, the later part is read alone.
    if (before && before->run == head.run && before->part == head.part - 1) {
      reader.read_file(earlier_part(path));
    }
  }
  const TraceHead last = reader.read_file(path);
  return std::move(reader).series(last);
}

}  // namespace zero
