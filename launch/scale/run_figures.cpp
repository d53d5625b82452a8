// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/scale/run_figures.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/median.h"
#include "device/memory_ledger.h"
#include "launch/telemetry/json_lines.h"

namespace zero {
namespace {

/// The sums over classes of memory of the final line; where a device has its own, its pages.
void take_memory(JsonFields& last, RunFigures& figures) {
  JsonFields memory = last.object("memory");
  for (const MemoryClass c : all_memory_classes()) {
    JsonFields bytes = memory.object(name_of(c));
    figures.planned_bytes += bytes.count("planned");
    figures.used_bytes += bytes.count("peak");
  }
  JsonFields device = last.object("device");
  JsonFields planned = device.object("planned");
  JsonFields used = device.object("used");
  if (const std::int64_t pages = planned.integer("pages", 0); pages > 0) {
    figures.planned_bytes = pages;
    figures.used_bytes = used.integer("pages", 0);
  }
}

/// The final line of a log; its steps go to `take`.
template <typename Take>
JsonFields final_line(const std::string& log, const Take& take) {
  std::optional<JsonFields> last;
  read_json_lines(log, [&](JsonFields& fields) {
    if (fields.has("final")) {
      last.emplace(std::move(fields));
    } else if (fields.has("step")) {
      take(fields);
    }
    return !last;
  });
  ZERO_CHECK(last.has_value(), "{}: has no final line: the run ended early", log);
  return std::move(*last);
}

}  // namespace

RunFigures read_run_figures(const std::string& log, std::int64_t warmup) {
  std::vector<double> seconds;
  std::vector<double> exposed;
  std::vector<double> communication;
  double tokens = 0;
  JsonFields last = final_line(log, [&](JsonFields& step) {
    if (step.count("step") <= warmup) return;
    seconds.push_back(step.number("step_seconds"));
    exposed.push_back(step.number("exposed_communication_seconds"));
    communication.push_back(step.number("communication_seconds"));
    tokens = step.number("tokens");
  });
  ZERO_CHECK(!seconds.empty(), "{}: found no step behind the {} of the warm-up", log, warmup);
  RunFigures figures{.step_seconds = median(seconds),
                     .communication_seconds = median(communication),
                     .exposed_seconds = median(exposed),
                     .plan_exact = last.flag("plan_exact"),
                     .threads = static_cast<int>(last.count("threads")),
                     .state_hash = last.text("state_hash")};
  figures.tokens_per_second = tokens / figures.step_seconds;
  // One rank's copies between its own buffers are no communication.
  if (figures.communication_seconds <= 0) figures.exposed_seconds = 0;
  take_memory(last, figures);
  return figures;
}

MachinePeak read_machine_peak(const std::string& log) {
  JsonFields last = final_line(log, [](JsonFields&) {});
  JsonFields profile = last.object("profile");
  return {.product_rate = profile.number("product_flop_per_second"),
          .cores = static_cast<int>(last.count("threads"))};
}

nlohmann::ordered_json RunFigures::json() const {
  return {{"tokens_per_second", tokens_per_second},
          {"step_seconds", step_seconds},
          {"communication_seconds", communication_seconds},
          {"exposed_communication_seconds", exposed_seconds},
          {"planned_bytes", planned_bytes},
          {"used_bytes", used_bytes},
          {"plan_exact", plan_exact},
          {"threads", threads},
          {"state_hash", state_hash}};
}

RunFigures RunFigures::from(JsonFields& fields) {
  RunFigures figures{.tokens_per_second = fields.number("tokens_per_second"),
                     .step_seconds = fields.number("step_seconds"),
                     .communication_seconds = fields.number("communication_seconds"),
                     .exposed_seconds = fields.number("exposed_communication_seconds"),
                     .planned_bytes = fields.count("planned_bytes"),
                     .used_bytes = fields.count("used_bytes"),
                     .plan_exact = fields.flag("plan_exact"),
                     .threads = static_cast<int>(fields.count("threads")),
                     .state_hash = fields.text("state_hash")};
  for (const auto& [key, value] : {std::pair{"tokens_per_second", figures.tokens_per_second},
                                   {"step_seconds", figures.step_seconds}}) {
    ZERO_CHECK(value > 0, "{}: found {}, expected a number above 0", fields.place(key), value);
  }
  return figures;
}

}  // namespace zero
