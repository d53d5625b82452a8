// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// A trace or a log as a series.

#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/message_text.h"
#include "launch/memory/memory_line.h"
#include "launch/memory/memory_series.h"
#include "launch/telemetry/json_lines.h"

namespace zero {
namespace {

std::optional<JsonFields> first_line(const std::string& path) {
  std::optional<JsonFields> first;
  read_json_lines(path, [&](JsonFields& fields) {
    first.emplace(std::move(fields));
    return false;
  });
  return first;
}

/// What the parts of a trace have in common, in their first lines.
std::int64_t run_of(JsonFields& fields) {
  const std::int64_t version = fields.integer("memory_trace");
  if (version != 1) {
    fields.refuse("memory_trace", "found version {}, expected 1: another version wrote it",
                  version);
  }
  return fields.integer("run");
}

/// Takes the lines of a series' files, in order.
class MemoryReader {
 public:
  explicit MemoryReader(const std::string& path) { series_.path = path; }

  void read_trace(const std::string& path) {
    bool first = true;
    read_json_lines(path, [&](JsonFields& fields) {
      std::exchange(first, false) ? take_head(fields) : take_trace(fields);
      return true;
    });
  }

  void read_log() {
    for (const MemoryClass c : all_memory_classes()) label_id({c, ""});
    read_json_lines(series_.path, [&](JsonFields& fields) {
      take_log(fields);
      return true;
    });
  }

  MemorySeries series() && {
    ZERO_CHECK(!series_.places.empty(),
               "{}: has no line of a step or phase, expected a trace or a log of zero_train",
               series_.path);
    return std::move(series_);
  }

 private:
  void take_head(JsonFields& fields) {
    series_.rank = static_cast<int>(fields.count("rank"));
    series_.ranks = static_cast<int>(fields.count("ranks"));
    series_.device_bytes = fields.count("device_bytes");
  }

  void take_trace(JsonFields& fields) {
    if (fields.has("memory_trace")) {
      fields.refuse("memory_trace",
                    "is the first line of a trace, but not the first of the file: two runs wrote "
                    "it");
    }
    if (fields.has("units")) {
      series_.units = fields.texts("units");
      return;
    }
    seconds_ = fields.number("t");
    move_to({seconds_, fields.count("step"), fields.text("phase")}, fields);
    if (fields.has("charged")) take_charged(fields);
    if (fields.has("bytes")) take_event(fields);
    if (fields.has("end")) series_.whole = fields.flag("end");
  }

  void take_log(JsonFields& fields) {
    if (fields.has("final") || fields.has("ended_by")) series_.whole = true;
    if (!fields.has("step")) return;
    const MemoryLine memory = MemoryLine::of(fields);
    seconds_ += fields.number("step_seconds");
    move_to({seconds_, fields.count("step"), "step"}, fields);
    series_.peaks.push_back(memory.peak_total);
    for (std::size_t c = 0; c < memory.now.size(); ++c) change_to(c, memory.now[c]);
  }

  void move_to(MemoryPlace place, const JsonFields& fields) {
    if (!series_.places.empty()) {
      const MemoryPlace& last = series_.places.back();
      const std::int64_t least = last.step + (series_.of_log() ? 1 : 0);
      if (place.step < least) {
        fields.refuse("step", "found {}, expected at least {}, behind the line before", place.step,
                      least);
      }
      if (place.step == last.step && place.phase == last.phase) return;
    }
    series_.places.push_back(std::move(place));
  }

  void take_event(JsonFields& fields) {
    const std::size_t label = label_of(fields);
    change_to(label, held(label) + bytes_of(fields, held(label), state_.total));
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
    std::map<std::size_t, std::int64_t> charged;
    std::int64_t sum = 0;
    for (JsonFields& each : fields.objects("charged")) {
      std::int64_t& bytes = charged[label_of(each)];
      const std::int64_t more = bytes_of(each, bytes, sum);
      bytes += more;
      sum += more;
    }
    for (std::size_t label = 0; label < series_.labels.size(); ++label) {
      change_to(label, charged[label]);
    }
  }

  /// Of a label that holds `held` of a sum. Sums of what is not negative, and together below the
  /// limit, cannot overflow.
  static std::int64_t bytes_of(JsonFields& fields, std::int64_t held, std::int64_t sum) {
    constexpr std::int64_t kMost = std::int64_t{1} << 60;
    const std::int64_t bytes = fields.integer("bytes");
    if (bytes < -held) {
      fields.refuse("bytes", "found {}, but the label holds {} bytes", bytes, held);
    }
    if (bytes > kMost - sum) {
      fields.refuse("bytes", "found {}, expected at most {}", bytes, kMost - sum);
    }
    return bytes;
  }

  std::size_t label_of(JsonFields& fields) {
    const std::string name = fields.text("class");
    const auto known = memory_class_from_name(name);
    if (!known) {
      fields.refuse("class", "found \"{}\", expected a class of memory such as \"optimizer\"",
                    printable_line(name, 64));
    }
    return label_id({*known, fields.text("label")});
  }

  std::size_t label_id(const MemoryLabel& label) {
    const auto [entry, is_new] = ids_.try_emplace(label, series_.labels.size());
    if (is_new) series_.labels.push_back(label);
    return entry->second;
  }

  std::int64_t held(std::size_t label) const {
    return label < state_.labels.size() ? state_.labels[label] : 0;
  }

  void change_to(std::size_t label, std::int64_t bytes) {
    if (bytes == held(label)) return;
    series_.changes.push_back({.seconds = seconds_,
                               .place = static_cast<std::int32_t>(series_.places.size()) - 1,
                               .label = static_cast<std::int32_t>(label),
                               .bytes = bytes - held(label)});
    state_.add(series_, series_.changes.back());
  }

  MemorySeries series_;
  MemoryState state_;
  double seconds_ = 0;
  std::map<MemoryLabel, std::size_t> ids_;
};

}  // namespace

MemorySeries read_memory(const std::string& path) {
  auto first = first_line(path);
  ZERO_CHECK(first, "{}: is empty, expected a trace (run.memory_trace) or a log (run.log)", path);
  MemoryReader reader(path);
  if (!first->lists("memory_trace")) {
    reader.read_log();
    return std::move(reader).series();
  }
  const std::int64_t run = run_of(*first);
  const std::string before = earlier_part(path);
  auto other = std::filesystem::exists(before) ? first_line(before) : std::nullopt;
  // Beside another run's the later part is read alone.
  if (other && run_of(*other) == run) reader.read_trace(before);
  reader.read_trace(path);
  return std::move(reader).series();
}

}  // namespace zero
