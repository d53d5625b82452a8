// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process/memory_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/backends.h"
#include "collectives/host_values.h"
#include "collectives/mesh.h"
#include "launch/telemetry/console.h"
#include "launch/train/training_state.h"

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

std::unique_ptr<Device> plan_device(const TrainConfig& config, Memory memory) {
  if (config.run.device == DeviceKind::cpu) return planning::open(config.run.threads, memory);
  return planning::open(1, Memory::apart, DeviceKind::cuda);
}

MemoryUse plan_memory(const TrainConfig& config, int rank, int world, BackendKind backend,
                      Memory memory) {
  const auto device = plan_device(config, memory);
  const auto communicator = planning::communicator(rank, world, backend, device.get());
  Mesh mesh(*communicator, config.mesh);
  const TrainingState training_state(config, mesh, *device);
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

}  // namespace zero
