// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/operation.h"
#include "device/device.h"
#include "launch/config/answers.h"
#include "launch/config/checked_value.h"
#include "launch/config/similar_names.h"
#include "launch/config/train_config.h"

namespace zero {
namespace {

using nlohmann::json;

constexpr const char* kFaults = "run.faults";
constexpr const char* kMarks = "run.fault_marks";
constexpr double kMostFaultSeconds = 1e6;

/// One object of run.faults, its members read one by one. Every error names it.
class Entry {
 public:
  Entry(std::string name, const json& object) : name_(std::move(name)), object_(object) {
    ZERO_CHECK(object.is_object(), "{}: found {}, expected an object such as {}", name_,
               shown_value(object), kExample);
  }

  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }

  template <typename... Arguments>
  [[noreturn]] void refuse(fmt::format_string<Arguments...> format,
                           Arguments&&... arguments) const {
    fail("{}: {}", name_, fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  void only(const std::vector<std::string>& keys) const {
    for (const auto& [key, value] : object_.items()) {
      if (std::ranges::count(keys, key) > 0) continue;
      const std::string near = did_you_mean(key, keys);
      refuse("has no key \"{}\"{} It has the keys {}", key, near.empty() ? "." : near,
             fmt::join(keys, ", "));
    }
  }

  void need(const char* key, std::string_view expected) const {
    if (!has(key)) refuse("has no {}; expected {}", key, expected);
  }

  std::string text(const char* key) const {
    if (!has(key)) return "";
    const json& value = object_.at(key);
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
      refuse("{} is {}, expected a text", key, shown_value(value));
    }
    return value.get<std::string>();
  }

  std::int64_t whole(const char* key, std::int64_t least, std::int64_t most) const {
    const double value = number(key, static_cast<double>(least), static_cast<double>(most));
    if (value != std::floor(value)) {
      refuse("{} is {}, expected a whole number", key, shown_value(object_.at(key)));
    }
    return static_cast<std::int64_t>(value);
  }

  double number(const char* key, double least, double most) const {
    const json& value = object_.at(key);
    const double found = value.is_number() ? value.get<double>() : std::nan("");
    if (!(found >= least && found <= most)) {
      refuse("{} is {}, expected a number from {:g} to {:g}", key, shown_value(value), least, most);
    }
    return found;
  }

  /// The index of the text in `names`.
  std::size_t one_of(const char* key, const json& value,
                     std::span<const std::string_view> names) const {
    const std::string text = value.is_string() ? value.get<std::string>() : "";
    const auto found = std::ranges::find(names, std::string_view(text));
    if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
    const std::string near = did_you_mean(text, {names.begin(), names.end()});
    refuse("{} is {}{} Expected one of {}", key, shown_value(value), near.empty() ? "." : near,
           fmt::join(names, ", "));
  }

  FaultKind kind(const json& value) const {
    return static_cast<FaultKind>(one_of("kind", value, kFaultKinds));
  }
  const json& at(const char* key) const { return object_.at(key); }

 private:
  static constexpr std::string_view kExample =
      R"({"kind": "kill", "rank": 3, "step": 7, "phase": "backward"})";

  std::string name_;
  const json& object_;
};

/// What this run cannot meet, wherever it is asked for.
void check_kind(const Entry& entry, FaultKind kind, const FaultSetting& setting) {
  using enum FaultKind;
  const bool on_host = kind == slow || kind == flip_memory || kind == flip_wire;
  if (on_host && setting.device != DeviceKind::cpu) {
    entry.refuse(
        "kind \"{}\" acts on what the host computes, and run.device is \"cuda\"; set "
        "run.device=cpu, or choose another kind",
        name_of(kind));
  }
  if (kind == out_of_memory && !setting.memory_is_limited) {
    entry.refuse(
        "kind \"out_of_memory\" takes all memory of a control group, and none limits this "
        "process's: it would take the machine's; start the job in one, for example systemd-run "
        "--user --scope -p MemoryMax=8G -p MemorySwapMax=0 COMMAND");
  }
}

/// Values that mean nothing for a kind.
void check_values(const Entry& entry, const Fault& fault) {
  const auto only_for = [&](const char* key, bool fits, std::string_view kinds) {
    if (!entry.has(key) || fits) return;
    entry.refuse("{} is of {}, and the kind is \"{}\"; leave it out", key, kinds,
                 name_of(fault.kind));
  };
  only_for("factor", fault.kind == FaultKind::slow, "slow");
  only_for("delay", fault.kind == FaultKind::slow_link, "slow_link");
  only_for("seconds", lasts(fault.kind), "slow, slow_link and disk_full");
}

bool is_call_name(const std::string& text) {
  const std::size_t open = text.find('(');
  if (open == std::string::npos || !text.ends_with(')') || open + 2 >= text.size()) return false;
  for (std::size_t i = 0; i < kOperations; ++i) {
    if (text.substr(0, open) == name_of(static_cast<Operation>(i))) return true;
  }
  return false;
}

void check_unit(const Entry& entry, const std::string& unit,
                const std::vector<std::string>& units) {
  if (unit.empty() || units.empty() || std::ranges::count(units, unit) > 0) return;
  const std::string near = did_you_mean(unit, units);
  entry.refuse(
      "unit is \"{}\"{} The model has {} units, {} to {}; zero_train --plan --schedule "
      "names them",
      unit, near.empty() ? "." : near, units.size(), units.front(), units.back());
}

/// Where it acts: phase, unit, collective and step fit each other and the kind.
void check_place(const Entry& entry, const Fault& fault, const FaultSetting& setting) {
  using enum FaultPhase;
  if (!fault.phase && fault.collective.empty()) {
    entry.refuse("has no phase; give \"phase\": one of {}, or \"collective\": \"{}\"",
                 fmt::join(kFaultPhases, ", "), "reduce_scatter(h.1)");
  }
  if (!fault.collective.empty() && !is_call_name(fault.collective)) {
    entry.refuse("collective is \"{}\", expected a call as errors name it: \"reduce_scatter(h.1)\"",
                 fault.collective);
  }
  const bool of_call = !fault.collective.empty() || fault.phase == gather || fault.phase == reduce;
  if (needs_collective(fault.kind) && !of_call) {
    entry.refuse(
        "kind \"{}\" is of a collective, and the phase is \"{}\"; expected phase gather or reduce, "
        "or a collective",
        name_of(fault.kind), name_of(*fault.phase));
  }
  if (needs_collective(fault.kind) && fault.kind != FaultKind::skip &&
      fault.collective.starts_with("barrier(")) {
    entry.refuse("kind \"{}\" needs values, and a barrier has none; choose another collective",
                 name_of(fault.kind));
  }
  const bool of_unit = of_call || fault.phase == forward || fault.phase == backward;
  if (!fault.unit.empty() && !of_unit) {
    entry.refuse("unit is \"{}\", and the phase \"{}\" is of no unit; leave it out", fault.unit,
                 name_of(*fault.phase));
  }
  check_unit(entry, fault.unit, setting.units);
  if (fault.phase && comes_once(*fault.phase) && entry.has("step")) {
    entry.refuse("step is given, and the phase \"{}\" comes once in a run; leave it out",
                 name_of(*fault.phase));
  }
}

Fault listed_fault(const std::string& name, const json& object, const FaultSetting& setting,
                   std::int64_t steps) {
  const Entry entry(name, object);
  entry.only({"kind", "rank", "step", "phase", "unit", "collective", "factor", "delay", "seconds"});
  entry.need("kind", fmt::format("one of {}", fmt::join(kFaultKinds, ", ")));
  entry.need("rank", fmt::format("the rank that fails, from 0 to {}", setting.world - 1));
  Fault fault{.kind = entry.kind(entry.at("kind")),
              .rank = static_cast<int>(entry.whole("rank", 0, setting.world - 1)),
              .unit = entry.text("unit"),
              .collective = entry.text("collective")};
  if (entry.has("phase")) {
    fault.phase = static_cast<FaultPhase>(entry.one_of("phase", entry.at("phase"), kFaultPhases));
  }
  check_kind(entry, fault.kind, setting);
  check_values(entry, fault);
  check_place(entry, fault, setting);
  if (entry.has("factor")) fault.factor = entry.number("factor", 1, 1000);
  if (entry.has("delay")) fault.delay = entry.number("delay", 0, kMostFaultSeconds);
  if (entry.has("seconds")) fault.seconds = entry.number("seconds", 0, kMostFaultSeconds);
  if (fault.phase && comes_once(*fault.phase)) return fault;
  entry.need("step", fmt::format("an optimizer step from 1 to run.steps, {}", steps));
  fault.step = entry.whole("step", 1, std::max<std::int64_t>(steps, 1));
  return fault;
}

DrawnFaults drawn_faults(const json& object, const FaultSetting& setting, bool saves) {
  const Entry entry(kFaults, object);
  entry.only({"seed", "every", "kinds"});
  entry.need("seed", "a whole number, from which the faults follow");
  entry.need("every", "the seconds from one fault to the next");
  DrawnFaults drawn{.seed = static_cast<std::uint64_t>(entry.whole("seed", 0, 1LL << 53)),
                    .every = entry.number("every", 0.001, kMostFaultSeconds),
                    .saves = saves};
  if (!entry.has("kinds")) {
    for (std::size_t i = 0; i < kFaultKinds.size(); ++i) {
      const auto kind = static_cast<FaultKind>(i);
      // Whether it can act may differ from host to host, and all ranks draw alike: it is asked for.
      if (kind == FaultKind::out_of_memory) continue;
      FaultSetting any = setting;
      any.memory_is_limited = true;
      try {
        check_kind(entry, kind, any);
        drawn.kinds.push_back(kind);
      } catch (const Error&) {  // NOLINT(bugprone-empty-catch): not drawn here
      }
    }
    return drawn;
  }
  const json& kinds = entry.at("kinds");
  if (!kinds.is_array() || kinds.empty()) {
    entry.refuse("kinds is {}, expected a list of some of {}", shown_value(kinds),
                 fmt::join(kFaultKinds, ", "));
  }
  for (const json& each : kinds) {
    drawn.kinds.push_back(entry.kind(each));
    check_kind(entry, drawn.kinds.back(), setting);
  }
  return drawn;
}

void check_allowed(const Configuration& values, const Environment& environment) {
  if (environment && environment("ZERO_ALLOW_FAULTS") == "1") return;
  throw refusal_of(values, {{kFaults}},
                   "run.faults makes ranks fail on purpose, and ZERO_ALLOW_FAULTS is not 1; set it "
                   "in the environment of all ranks, or leave run.faults out");
}

/// run.fault_marks, or a folder beside the checkpoints, which a restart goes on from.
std::string make_marks(Configuration& values) {
  const std::string checkpoints = values.text("run.checkpoint.folder");
  if (values.is_null(kMarks) && !checkpoints.empty()) {
    std::string folder = checkpoints;
    while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
    values.resolve(kMarks, folder + ".faults", "run.checkpoint.folder");
  }
  return values.text(kMarks);
}

}  // namespace

FaultOptions make_faults(Configuration& values, const FaultSetting& setting, Refusals& refusals) {
  const json faults = values.at(kFaults).value;
  if (faults.is_null()) {
    if (values.given(kMarks) && !values.is_null(kMarks)) {
      refusals.add(refusal_of(
          values, {{kMarks}},
          "run.fault_marks is given, but run.faults is not: no fault leaves a mark; leave it out"));
    }
    return {};
  }
  FaultOptions options;
  if (!refusals.collect([&] { check_allowed(values, setting.environment); })) return options;
  const auto collect = [&](const auto& read) {
    refusals.collect([&] { at_place(values.source(), read); });
  };
  if (faults.is_object()) {
    const bool saves = !values.text("run.checkpoint.folder").empty();
    collect([&] { options.drawn = drawn_faults(faults, setting, saves); });
  } else if (faults.is_array()) {
    for (std::size_t i = 0; i < faults.size(); ++i) {
      collect([&] {
        options.listed.push_back(listed_fault(fmt::format("{}[{}]", kFaults, i), faults[i], setting,
                                              values.integer("run.steps")));
      });
    }
  } else {
    refusals.add(refusal_of(
        values, {{kFaults}},
        "run.faults: found {}, expected a list of faults, or {{\"seed\": N, \"every\": SECONDS}}",
        shown_value(faults)));
  }
  if (!options.empty()) options.marks = make_marks(values);
  if (!options.empty()) options.units = setting.units;
  return options;
}

std::vector<Option> fault_options() {
  using enum ValueType;
  return {
      honour(kFaults, anything, "null",
             "for tests of faults alone, and only where ZERO_ALLOW_FAULTS is 1 in the environment: "
             "a list of faults that ranks are made to meet, or {\"seed\": N, \"every\": SECONDS} "
             "for drawn ones (docs/injecting_faults.md)"),
      honour(kMarks, text, "null",
             "with run.faults: a folder in which each fault that acts leaves a file, so that the "
             "attempt after a restart does not meet it again; null: run.checkpoint.folder with "
             "\".faults\" behind it"),
  };
}

}  // namespace zero
