// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <sstream>
#include <string_view>
#include <vector>

#include "collectives/backends.h"
#include "collectives/host_values.h"
#include "collectives/mesh.h"
#include "engine/engine.h"
#include "engine/ownership.h"
#include "launch/config/train_config.h"
#include "launch/flight/flight_layout.h"
#include "launch/process/quantity.h"
#include "launch/train/training_state.h"
#include "model/model.h"

namespace zero {
namespace {

// One row of numbers, for the maximum over ranks: ledger | arenas | file | host | adopted.
constexpr std::size_t kFigures = 3 * kMemoryClasses + 2;

std::vector<std::int64_t> figures_of(const MemoryUse& use) {
  std::vector<std::int64_t> row(use.ledger.begin(), use.ledger.end());
  row.insert(row.end(), use.device.arenas.begin(), use.device.arenas.end());
  row.insert(row.end(), use.file.begin(), use.file.end());
  row.push_back(use.host);
  row.push_back(use.device.adopted);
  return row;
}

MemoryUse use_of(std::span<const std::int64_t> row) {
  MemoryUse use;
  std::copy_n(row.begin(), kMemoryClasses, use.ledger.begin());
  std::copy_n(row.begin() + kMemoryClasses, kMemoryClasses, use.device.arenas.begin());
  std::copy_n(row.begin() + 2 * kMemoryClasses, kMemoryClasses, use.file.begin());
  use.host = row[3 * kMemoryClasses];
  use.device.adopted = row.back();
  return use;
}

}  // namespace

MemoryUse MemoryUse::of(Device& device) {
  return {device.ledger().snapshot().peak, device.device_bytes(),
          device.file_ledger().snapshot().peak,
          device.memory() == MemorySpace::device ? device.host_bytes() : 0};
}

MemoryUse MemoryUse::larger(const MemoryUse& other) const {
  std::vector<std::int64_t> row = figures_of(*this);
  const std::vector<std::int64_t> others = figures_of(other);
  std::ranges::transform(row, others, row.begin(),
                         [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
  return use_of(row);
}

std::int64_t MemoryUse::bounded() const {
  return device.in_pages() > 0 ? device.in_pages() : sum_of(ledger);
}

std::unique_ptr<Device> plan_device(const TrainConfig& config, MemorySpace memory,
                                    const planning::ClockOptions& clock) {
  if (config.run.device == DeviceKind::cpu) {
    return planning::open(clock, config.run.threads, memory, DeviceKind::cpu);
  }
  return planning::open(clock, 1, MemorySpace::device, DeviceKind::cuda);
}

MemoryUse plan_memory(const TrainConfig& config, int rank, int world, BackendKind backend,
                      MemorySpace memory) {
  const auto device = plan_device(config, memory);
  const auto communicator = planning::communicator(rank, world, backend, device.get());
  Mesh mesh(*communicator, config.mesh);
  const TrainingState training_state(config, mesh, *device);
  return MemoryUse::of(*device);
}

LiveMemory plan_live(const TrainConfig& config, int rank, int world, BackendKind backend,
                     MemorySpace memory) {
  const auto device = plan_device(config, memory);
  const auto communicator = planning::communicator(rank, world, backend, device.get());
  Mesh mesh(*communicator, config.mesh);
  LiveMemory live = live_memory(config, mesh, *device);
  live.allocated = plan_memory(config, rank, world, backend, memory).ledger;
  return live;
}

std::int64_t model_state_bytes(const BytesByClass& bytes) {
  using enum MemoryClass;
  return at(bytes, parameters) + at(bytes, gradients) + at(bytes, optimizer);
}

MemoryReport merge_memory(Communicator& communicator, Device& device, const MemoryUse& planned,
                          const MemoryUse& used) {
  // planned | used | model states | whether they differ
  std::vector<std::int64_t> values = figures_of(planned);
  const std::vector<std::int64_t> figures = figures_of(used);
  values.insert(values.end(), figures.begin(), figures.end());
  values.push_back(model_state_bytes(used.ledger));
  values.push_back(planned == used ? 0 : 1);
  host_all_reduce(communicator, device, View::of(std::span<std::int64_t>(values)), ReduceOp::max,
                  {"memory report", {}});
  const std::span<const std::int64_t> merged = values;
  return {.planned = use_of(merged.first(kFigures)),
          .used = use_of(merged.subspan(kFigures, kFigures)),
          .exact = values[2 * kFigures + 1] == 0,
          .model_state_bytes = values[2 * kFigures]};
}

nlohmann::json listed_json(const BytesByClass& bytes) {
  nlohmann::json classes = nlohmann::json::object();
  for (const MemoryClass c : all_memory_classes()) {
    const std::int64_t own = at(bytes, c);
    if (own > 0) classes[std::string(name_of(c))] = own;
  }
  return classes;
}

nlohmann::json device_json(const DeviceBytes& bytes) {
  return {{"arenas", listed_json(bytes.arenas)},
          {"adopted", bytes.adopted},
          {"pages", bytes.in_pages()}};
}

nlohmann::json MemoryReport::json() const {
  nlohmann::json all;
  for (const MemoryClass c : all_memory_classes()) {
    all[std::string(name_of(c))] = {{"planned", at(planned.ledger, c)},
                                    {"peak", at(used.ledger, c)}};
  }
  return all;
}

std::string MemoryReport::table() const {
  const auto row = [](std::string_view name, std::int64_t plan, std::int64_t peak) {
    return fmt::format("  {:<14} {:>12} {:>12}\n", name, size_text(plan), size_text(peak));
  };
  std::string text = fmt::format("  {:<14} {:>12} {:>12}\n", "memory", "planned", "peak");
  const auto rows = [&](const BytesByClass& plan, const BytesByClass& peak) {
    for (const MemoryClass c : all_memory_classes()) {
      if (at(plan, c) != 0 || at(peak, c) != 0) text += row(name_of(c), at(plan, c), at(peak, c));
    }
  };
  rows(planned.ledger, used.ledger);
  text += row("sum", sum_of(planned.ledger), sum_of(used.ledger));
  const std::int64_t pages = planned.device.in_pages();
  if (pages != 0) text += row("of the GPU", pages, used.device.in_pages());
  if (planned.file == BytesByClass{} && used.file == BytesByClass{}) return text;
  text += "  in files, beside memory\n";
  rows(planned.file, used.file);
  return text;
}

nlohmann::json traffic_json(const TrafficCounter& traffic) {
  return {{"all_gather_bytes", traffic.of(Operation::all_gather)},
          {"reduce_scatter_bytes", traffic.of(Operation::reduce_scatter)},
          {"all_reduce_bytes", traffic.of(Operation::all_reduce)}};
}

nlohmann::json axes_json(const MeshTraffic& traffic, const MeshShape& mesh) {
  nlohmann::json json;
  for (const Axis axis : kAllAxes) {
    if (mesh.size(axis) > 1) json[std::string(name_of(axis))] = traffic_json(traffic.of(axis));
  }
  json["across"] = traffic_json(traffic.across);
  return json;
}

nlohmann::json mesh_json(const MeshShape& mesh) {
  return {{"replicate", mesh.replicate}, {"shard", mesh.shard}, {"tensor", mesh.tensor}};
}

MeshTraffic step_traffic(TrainingState& state, std::int64_t micro_batches) {
  MeshTraffic traffic = state.engine().planned_axes();
  CountedMesh& mesh = state.engine().mesh();
  const TrafficCounter each = state.model().tensor_traffic();
  TrafficCounter& along = mesh.booked(traffic, mesh.axis(Axis::tensor));
  for (std::int64_t i = 0; i < micro_batches; ++i) along.add(each);
  return traffic;
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
  int largest = 0;
  std::int64_t most = sum_of(plan.memory.ledger);
  for (const int rank : planned_ranks(config)) {
    if (rank == 0) continue;
    const MemoryUse use = plan_memory(config, rank, config.world, backend);
    plan.memory = plan.memory.larger(use);
    if (sum_of(use.ledger) > most) {
      most = sum_of(use.ledger);
      largest = rank;
    }
  }
  plan.live = plan_live(config, largest, config.world, backend);
  plan.traffic = step_traffic(training_state, config.batch.accumulation);
  plan.mesh = config.mesh;
  plan.flight_file = static_cast<std::int64_t>(flight::Offsets({}).end);
  plan.recompute = config.recompute.plan.text();
  plan.keeps_outputs = config.recompute.plan.on(*device).outputs == BlockOutputs::kept;
  if (plan.mesh.replicate > 1 || plan.mesh.tensor > 1) {
    plan.ownership = ownership_table(engine.ownership());
  }
  plan.parameters = engine.parameter_count();
  plan.padding = engine.padding_count();
  plan.peak_live_elements = engine.schedule().peak_live_elements;
  plan.live_limit = live_limit_line(engine.schedule(), config.engine.limits);
  plan.gathers = engine.schedule().gathers;
  plan.schedule_hash = engine.schedule().hash();
  std::istringstream lines(engine.schedule().dump(engine.unit_names()));
  for (std::string line; std::getline(lines, line);) plan.schedule.push_back(line);
  return plan;
}

nlohmann::json Plan::json() const {
  nlohmann::json classes;
  for (const MemoryClass c : all_memory_classes()) {
    classes[std::string(name_of(c))] = {{"planned", at(memory.ledger, c)}};
  }
  return {{"world", world},
          {"stage", stage},
          {"parameters", parameters},
          {"padding", padding},
          {"model_state_bytes", model_state_bytes(memory.ledger)},
          {"memory", classes},
          {"device", device_json(memory.device)},
          {"file", listed_json(memory.file)},
          {"flight_file", flight_file},
          {"live", live.json()},
          {"mesh", mesh_json(mesh)},
          {"communication", traffic_json(traffic.total())},
          {"communication_by_axis", axes_json(traffic, mesh)},
          {"gathers", gathers},
          {"peak_live_elements", peak_live_elements},
          {"recompute", recompute},
          {"keeps_outputs", keeps_outputs},
          {"schedule_hash", fmt::format("{:016x}", schedule_hash)},
          {"schedule", schedule}};
}

std::string traffic_text(const MeshTraffic& traffic, const MeshShape& mesh) {
  std::string out = "\nbytes one rank sends in a step\n";
  const auto add = [&](std::string_view along, const TrafficCounter& sent) {
    for (const Operation operation :
         {Operation::all_gather, Operation::reduce_scatter, Operation::all_reduce}) {
      const std::int64_t bytes = sent.of(operation);
      if (bytes == 0 && !along.empty()) continue;
      out += fmt::format("  {:<14} {:>12} {:>16} bytes{}\n", name_of(operation), size_text(bytes),
                         bytes, along);
    }
  };
  if (mesh.replicate == 1 && mesh.tensor == 1) {
    add("", traffic.total());
    return out;
  }
  for (const Axis axis : kAllAxes) {
    add(fmt::format("  along {}", name_of(axis)), traffic.of(axis));
  }
  add("  across axes", traffic.across);
  return out;
}

std::string Plan::memory_text() const {
  std::string out = "\nmemory of the largest rank\n";
  const auto row = [&](std::string_view name, std::int64_t bytes, std::string_view note = {}) {
    out += fmt::format("  {:<14} {:>12} {:>16} bytes{}\n", name, size_text(bytes), bytes, note);
  };
  const auto rows = [&](const BytesByClass& of, std::string_view of_optimizer = {}) {
    for (const MemoryClass c : all_memory_classes()) {
      const bool noted = c == MemoryClass::optimizer;
      if (at(of, c) != 0) row(name_of(c), at(of, c), noted ? of_optimizer : std::string_view());
    }
  };
  rows(memory.ledger);
  row("sum", sum_of(memory.ledger));
  if (flight_file != 0) {
    row("flight file", flight_file, " beside the sum, mapped by the host's ranks");
  }
  if (memory.file != BytesByClass{}) {
    out += "\nin files, beside memory\n";
    rows(memory.file, ", read and written in a step");
  }
  const DeviceBytes& device = memory.device;
  if (device.in_pages() == 0) return out;
  row("of the host", memory.host, " pinned");
  out += "\nof the GPU: a block for each class, aligned, with gaps\n";
  rows(device.arenas);
  if (device.adopted != 0) row("NCCL's own", device.adopted, " for registered buffers");
  row("in pages", device.in_pages(), " that the driver gives");
  return out;
}

std::string live_limit_line(const Schedule& schedule, const ScheduleLimits& limits) {
  constexpr const char* kKey = "zero_optimization.stage3_max_live_parameters";
  if (!limits.live_elements) {
    if (schedule.peak_live_elements <= kLiveElements) return {};
    return fmt::format(
        "{} elements are gathered at once, above {}, as {} is not given: the two largest units "
        "that follow one another, so that each is gathered while the one before computes",
        schedule.peak_live_elements, kLiveElements, kKey);
  }
  const bool holds_back = schedule.pair_elements > schedule.live_limit;
  if (!holds_back || limits.prefetch_elements) return {};
  return fmt::format(
      "{} is {}, and the two largest units that follow one another have {} elements: the second is "
      "gathered when it is used, and waited for; leave the key out to gather it ahead",
      kKey, schedule.live_limit, schedule.pair_elements);
}

std::string Plan::text(LiveMemory::Labels labels, bool with_schedule) const {
  std::string out =
      fmt::format("{} parameters ({} padding), stage {}, {} rank(s) on {}\n", parameters, padding,
                  stage, world, memory.device.in_pages() > 0 ? "GPUs" : "CPUs");
  out += memory_text();
  out += live.text(labels);
  out += traffic_text(traffic, mesh);
  if (!ownership.empty()) out += "\n" + ownership;
  out += fmt::format("\nschedule of a micro-batch: {} gathers, {} elements gathered at most",
                     gathers, peak_live_elements);
  const std::string limit = live_limit.empty() ? "" : "\n" + live_limit;
  if (!with_schedule) return out + "; --schedule prints it" + limit + "\n";
  return out + fmt::format("{}\n  {}\n", limit, fmt::join(schedule, "\n  "));
}

}  // namespace zero
