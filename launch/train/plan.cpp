// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "collectives/backends.h"
#include "launch/telemetry/console.h"
#include "launch/train/training_state.h"

namespace zero {

nlohmann::json traffic_json(const TrafficCounter& traffic) {
  return {{"all_gather_bytes", traffic.of(Operation::all_gather)},
          {"reduce_scatter_bytes", traffic.of(Operation::reduce_scatter)},
          {"all_reduce_bytes", traffic.of(Operation::all_reduce)}};
}

nlohmann::json axes_json(const MeshTraffic& traffic, const MeshShape& mesh) {
  nlohmann::json json;
  for (const Axis axis : {Axis::replicate, Axis::shard, Axis::tensor}) {
    if (mesh.size(axis) > 1) json[std::string(name_of(axis))] = traffic_json(traffic.of(axis));
  }
  json["across"] = traffic_json(traffic.across);
  return json;
}

std::vector<int> planned_ranks(const TrainConfig& config) {
  std::vector<int> ranks;
  for (int rank = 0; rank < config.world; ++rank) {
    if (config.world <= 8 || rank < config.mesh.tensor || rank == config.world - 1) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

RankPlans plan_ranks(const TrainConfig& config, BackendKind backend) {
  RankPlans plans;
  for (const int rank : planned_ranks(config)) {
    plans[rank] = plan_memory(config, rank, config.world, backend);
  }
  return plans;
}

Plan make_plan(const TrainConfig& config, BackendKind backend) {
  Plan plan;
  plan.world = config.world;
  plan.stage = config.engine.stage;
  const auto device = plan_device(config);
  const auto communicator = planning::communicator(0, config.world, backend, device.get());
  Mesh mesh(*communicator, config.mesh);
  TrainingState training_state(config, mesh, *device);
  Engine& engine = training_state.engine();
  plan.memory = MemoryUse::of(*device);
  for (const int rank : planned_ranks(config)) {
    if (rank == 0) continue;
    plan.memory = plan.memory.larger(plan_memory(config, rank, config.world, backend));
  }
  plan.traffic = engine.planned_axes();
  for (std::int64_t i = 0; i < config.batch.accumulation; ++i) {
    engine.mesh()
        .booked(plan.traffic, engine.mesh().axis(Axis::tensor))
        .add(training_state.model().tensor_traffic());
  }
  plan.mesh = config.mesh;
  plan.recompute = config.recompute.plan.text();
  plan.keeps_outputs = config.recompute.plan.on(*device).outputs == BlockOutputs::kept;
  if (plan.mesh.replicate > 1 || plan.mesh.tensor > 1) {
    plan.ownership = ownership_table(engine.ownership());
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
    classes[std::string(name_of(c))] = {{"planned", memory.ledger[static_cast<std::size_t>(c)]}};
  }
  return {{"world", world},
          {"stage", stage},
          {"parameters", parameters},
          {"padding", padding},
          {"model_state_bytes", model_state_bytes(memory.ledger)},
          {"memory", classes},
          {"device", device_json(memory.device)},
          {"mesh", {{"replicate", mesh.replicate}, {"shard", mesh.shard}, {"tensor", mesh.tensor}}},
          {"communication", traffic_json(traffic.total())},
          {"communication_by_axis", axes_json(traffic, mesh)},
          {"gathers", gathers},
          {"peak_live_elements", peak_live_elements},
          {"recompute", recompute},
          {"keeps_outputs", keeps_outputs},
          {"schedule_hash", fmt::format("{:016x}", schedule_hash)},
          {"schedule", schedule}};
}

std::string Plan::traffic_text() const {
  std::string out = "\nbytes one rank sends in a step\n";
  const auto add = [&](std::string_view along, const TrafficCounter& sent) {
    for (const Operation operation :
         {Operation::all_gather, Operation::reduce_scatter, Operation::all_reduce}) {
      const std::int64_t bytes = sent.of(operation);
      if (bytes == 0 && !along.empty()) continue;
      out += fmt::format("  {:<14} {:>12} {:>16} bytes{}\n", name_of(operation),
                         bytes_text(static_cast<double>(bytes)), bytes, along);
    }
  };
  if (ownership.empty()) {
    add("", traffic.total());
    return out;
  }
  for (const Axis axis : {Axis::replicate, Axis::shard, Axis::tensor}) {
    add(fmt::format("  along {}", name_of(axis)), traffic.of(axis));
  }
  add("  across axes", traffic.across);
  return out;
}

std::string Plan::memory_text() const {
  std::string out = "\nmemory of the largest rank\n";
  const auto row = [&](std::string_view name, std::int64_t bytes, std::string_view note = {}) {
    out += fmt::format("  {:<14} {:>12} {:>16} bytes{}\n", name,
                       bytes_text(static_cast<double>(bytes)), bytes, note);
  };
  for (const MemoryClass c : all_memory_classes()) {
    const std::int64_t bytes = memory.ledger[static_cast<std::size_t>(c)];
    if (bytes != 0) row(name_of(c), bytes);
  }
  row("sum", std::accumulate(memory.ledger.begin(), memory.ledger.end(), std::int64_t{0}));
  const DeviceBytes& device = memory.device;
  if (device.in_pages() == 0) return out;
  out += "\nof the GPU: a block for each class, aligned, with gaps\n";
  for (const MemoryClass c : all_memory_classes()) {
    const std::int64_t bytes = device.arenas[static_cast<std::size_t>(c)];
    if (bytes != 0) row(name_of(c), bytes);
  }
  if (device.adopted != 0) row("NCCL's own", device.adopted, " for registered buffers");
  row("in pages", device.in_pages(), " that the driver gives");
  return out;
}

std::string Plan::text() const {
  std::string out = fmt::format("{} parameters ({} padding), stage {}, {} rank(s)\n", parameters,
                                padding, stage, world);
  out += memory_text();
  out += traffic_text();
  if (!ownership.empty()) out += "\n" + ownership;
  return out +
         fmt::format("\nschedule of a micro-batch ({} gathers, {} elements live at most)\n  {}\n",
                     gathers, peak_live_elements, fmt::join(schedule, "\n  "));
}

}  // namespace zero
