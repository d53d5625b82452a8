// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "collectives/backends.h"
#include "launch/console.h"
#include "launch/workbench.h"

namespace zero {

nlohmann::json traffic_json(const TrafficCounter& traffic) {
  return {{"all_gather_bytes", traffic.of(Operation::all_gather)},
          {"reduce_scatter_bytes", traffic.of(Operation::reduce_scatter)},
          {"all_reduce_bytes", traffic.of(Operation::all_reduce)}};
}

Plan make_plan(const TrainConfig& config, std::string_view backend) {
  Plan plan;
  plan.world = config.world;
  plan.stage = config.engine.stage;
  const auto communicator = planning::communicator(0, config.world, backend);
  const auto device = planning::open(config.run.threads);
  Mesh mesh(*communicator, config.mesh);
  Workbench workbench(config, mesh, *device);
  Engine& engine = workbench.engine();
  plan.memory = device->ledger().snapshot().peak;
  // Shards are equal, so ranks differ by little: the last one, or all of a small world, is enough.
  for (int rank = config.world <= 8 ? 1 : config.world - 1; rank < config.world; ++rank) {
    const MemoryByClass other = plan_memory(config, rank, config.world, backend);
    std::transform(other.begin(), other.end(), plan.memory.begin(), plan.memory.begin(),
                   [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
  }
  plan.traffic = engine.planned_traffic();
  for (std::int64_t i = 0; i < config.batch.accumulation; ++i) {
    plan.traffic.add(workbench.model().tensor_traffic());
  }
  plan.parameters = engine.parameter_count();
  plan.padding = engine.padding_count();
  plan.peak_live_elements = engine.schedule().peak_live_elements;
  plan.gathers = engine.schedule().gathers;
  plan.schedule_hash = engine.schedule().hash();
  std::istringstream lines(engine.schedule().dump(engine.unit_names()));
  for (std::string line; std::getline(lines, line);) plan.schedule.push_back(line);
  return plan;
}

nlohmann::json Plan::json() const {
  nlohmann::json classes;
  for (const MemoryClass c : all_memory_classes()) {
    classes[std::string(name_of(c))] = {{"planned", memory[static_cast<std::size_t>(c)]}};
  }
  return {{"world", world},
          {"stage", stage},
          {"parameters", parameters},
          {"padding", padding},
          {"model_state_bytes", model_state_bytes(memory)},
          {"memory", classes},
          {"communication", traffic_json(traffic)},
          {"gathers", gathers},
          {"peak_live_elements", peak_live_elements},
          {"schedule_hash", fmt::format("{:016x}", schedule_hash)},
          {"schedule", schedule}};
}

std::string Plan::text() const {
  std::string out = fmt::format(
      "{} parameters ({} padding), stage {}, {} rank(s)\n\nmemory of the largest rank\n",
      parameters, padding, stage, world);
  for (const MemoryClass c : all_memory_classes()) {
    const std::int64_t bytes = memory[static_cast<std::size_t>(c)];
    if (bytes != 0)
      out += fmt::format("  {:<14} {:>12} {:>16} bytes\n", name_of(c),
                         bytes_text(static_cast<double>(bytes)), bytes);
  }
  const std::int64_t sum = std::accumulate(memory.begin(), memory.end(), std::int64_t{0});
  out += fmt::format("  {:<14} {:>12} {:>16} bytes\n", "sum", bytes_text(static_cast<double>(sum)),
                     sum);
  out += "\nbytes one rank sends in a step\n";
  for (const Operation operation :
       {Operation::all_gather, Operation::reduce_scatter, Operation::all_reduce}) {
    out +=
        fmt::format("  {:<14} {:>12} {:>16} bytes\n", name_of(operation),
                    bytes_text(static_cast<double>(traffic.of(operation))), traffic.of(operation));
  }
  return out +
         fmt::format("\nschedule of a micro-batch ({} gathers, {} elements live at most)\n  {}\n",
                     gathers, peak_live_elements, fmt::join(schedule, "\n  "));
}

}  // namespace zero
