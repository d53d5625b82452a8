// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/run_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "collectives/backends.h"
#include "collectives/host_values.h"
#include "launch/run_device.h"
#include "launch/telemetry/console.h"
#include "launch/workbench.h"

namespace zero {
namespace {

// One row of numbers, for the maximum over ranks: ledger | arenas | adopted.
constexpr std::size_t kFigures = 2 * kMemoryClasses + 1;

std::vector<std::int64_t> figures_of(const MemoryUse& use) {
  std::vector<std::int64_t> row(use.ledger.begin(), use.ledger.end());
  row.insert(row.end(), use.device.arenas.begin(), use.device.arenas.end());
  row.push_back(use.device.adopted);
  return row;
}

MemoryUse use_of(std::span<const std::int64_t> row) {
  MemoryUse use;
  std::copy_n(row.begin(), kMemoryClasses, use.ledger.begin());
  std::copy_n(row.begin() + kMemoryClasses, kMemoryClasses, use.device.arenas.begin());
  use.device.adopted = row.back();
  return use;
}

std::string why_none(const TrainConfig& config) {
  if (!config.engine.graphs) return "run.graphs is false";
  if (config.mesh.tensor > 1) return "collectives of the tensor group lie inside the passes";
  if (config.run.profile || !config.run.trace.empty()) return "every operation was timed";
  return "no pass came a second time";
}

constexpr int kRows = 16;  // beyond that, only their number is given

/// The hosts of ranks, each once, in order of first appearance.
std::vector<std::string> hosts_of(const std::vector<std::string>& hosts, int first, int count) {
  std::vector<std::string> found;
  for (int rank = first; rank < first + count; ++rank) {
    const std::string& host = hosts.at(static_cast<std::size_t>(rank));
    if (std::ranges::find(found, host) == found.end()) found.push_back(host);
  }
  return found;
}

}  // namespace

MemoryUse MemoryUse::of(Device& device) {
  return {device.ledger().snapshot().peak, device.device_bytes()};
}

MemoryUse MemoryUse::larger(const MemoryUse& other) const {
  std::vector<std::int64_t> row = figures_of(*this);
  const std::vector<std::int64_t> others = figures_of(other);
  std::ranges::transform(row, others, row.begin(),
                         [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
  return use_of(row);
}

MemoryUse plan_memory(const TrainConfig& config, int rank, int world, BackendKind backend,
                      Memory memory) {
  const auto device = plan_device(config, memory);
  const auto communicator = planning::communicator(rank, world, backend, device.get());
  Mesh mesh(*communicator, config.mesh);
  const Workbench workbench(config, mesh, *device);
  return MemoryUse::of(*device);
}

std::int64_t model_state_bytes(const BytesByClass& bytes) {
  const auto of = [&](MemoryClass c) { return bytes[static_cast<std::size_t>(c)]; };
  return of(MemoryClass::parameters) + of(MemoryClass::gradients) + of(MemoryClass::optimizer);
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

nlohmann::json device_json(const DeviceBytes& bytes) {
  nlohmann::json arenas = nlohmann::json::object();
  for (const MemoryClass c : all_memory_classes()) {
    const std::int64_t own = bytes.arenas[static_cast<std::size_t>(c)];
    if (own > 0) arenas[std::string(name_of(c))] = own;
  }
  return {{"arenas", arenas}, {"adopted", bytes.adopted}, {"pages", bytes.in_pages()}};
}

nlohmann::json MemoryReport::json() const {
  nlohmann::json all;
  for (const MemoryClass c : all_memory_classes()) {
    const auto i = static_cast<std::size_t>(c);
    all[std::string(name_of(c))] = {{"planned", planned.ledger[i]}, {"peak", used.ledger[i]}};
  }
  return all;
}

std::string MemoryReport::table() const {
  const auto row = [](std::string_view name, std::int64_t plan, std::int64_t peak) {
    return fmt::format("  {:<14} {:>12} {:>12}\n", name, bytes_text(static_cast<double>(plan)),
                       bytes_text(static_cast<double>(peak)));
  };
  std::string text = fmt::format("  {:<14} {:>12} {:>12}\n", "memory", "planned", "peak");
  for (const MemoryClass c : all_memory_classes()) {
    const auto i = static_cast<std::size_t>(c);
    const std::int64_t plan = planned.ledger[i];
    const std::int64_t peak = used.ledger[i];
    if (plan != 0 || peak != 0) text += row(name_of(c), plan, peak);
  }
  const auto sum = [](const BytesByClass& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  };
  text += row("sum", sum(planned.ledger), sum(used.ledger));
  const std::int64_t pages = planned.device.in_pages();
  if (pages != 0) text += row("of the GPU", pages, used.device.in_pages());
  return text;
}

std::string graphs_text(const CaptureCounts& captured, const TrainConfig& config) {
  if (captured.refused > 0) {
    return fmt::format("graphs: {} pass(es) captured, {} submitted kernel by kernel: {}",
                       captured.graphs, captured.refused, captured.refusal);
  }
  if (captured.graphs == 0) return fmt::format("graphs: none, {}", why_none(config));
  return fmt::format("graphs: {} passes captured, of {} kernels, fills and copies", captured.graphs,
                     captured.nodes);
}

nlohmann::ordered_json graphs_json(const CaptureCounts& captured, const TrainConfig& config) {
  return {{"passes", captured.graphs},
          {"pieces", captured.nodes},
          {"refused", captured.refused},
          {"text", graphs_text(captured, config)}};
}

ExposedUnits::ExposedUnits(std::vector<std::string> units, const Schedule& schedule)
    : places_(std::move(units)) {
  places_.emplace_back("the boundary");
  for (const ScheduleStep& step : schedule.steps) units_.push_back(step.use.unit);
  seconds_.assign(places_.size(), 0.0);
}

void ExposedUnits::add(std::span<const double> by_use, double total) {
  for (std::size_t i = 0; i < by_use.size(); ++i) {
    seconds_[static_cast<std::size_t>(units_[i])] += by_use[i];
    total -= by_use[i];
  }
  seconds_.back() += std::max(0.0, total);
  ++steps_;
}

std::string ExposedUnits::summary() const {
  const double total = std::accumulate(seconds_.begin(), seconds_.end(), 0.0);
  if (total <= 0) return {};
  const auto worst = std::max_element(seconds_.begin(), seconds_.end());
  return fmt::format(
      "exposed communication: {:.2f} ms a step, most of it at {}: {:.2f} ms", 1e3 * total / steps_,
      places_[static_cast<std::size_t>(worst - seconds_.begin())], 1e3 * *worst / steps_);
}

MeshTable mesh_table(const MeshShape& shape, const std::vector<std::string>& hosts) {
  MeshTable table;
  if (shape.replicate == 1 && shape.tensor == 1) return table;
  table.text = fmt::format("mesh: replicate {} x shard {} x tensor {}\n", shape.replicate,
                           shape.shard, shape.tensor);
  const int rows = shape.replicate * shape.shard;
  int crossing = 0;
  for (int row = 0; row < rows; ++row) {
    const int first = row * shape.tensor;
    const std::vector<std::string> on = hosts_of(hosts, first, shape.tensor);
    if (on.size() > 1 && crossing++ == 0) {
      table.warnings.push_back(fmt::format(
          "the tensor group of ranks {} to {} is on {} hosts ({}): every layer waits for the link "
          "between them; make mesh.tensor divide the ranks of a host",
          first, first + shape.tensor - 1, on.size(), fmt::join(on, ", ")));
    }
    if (row >= kRows) continue;
    std::vector<int> ranks(static_cast<std::size_t>(shape.tensor));
    std::iota(ranks.begin(), ranks.end(), first);
    table.text +=
        fmt::format("  replicate {:>3}  shard {:>4}  ranks {}  on {}\n", row / shape.shard,
                    row % shape.shard, fmt::join(ranks, " "), fmt::join(on, ", "));
  }
  if (rows > kRows) table.text += fmt::format("  and {} more tensor groups\n", rows - kRows);
  if (crossing > 1) {
    table.warnings.back() += fmt::format(" (and {} more groups)", crossing - 1);
  }
  table.text.pop_back();
  return table;
}

}  // namespace zero
