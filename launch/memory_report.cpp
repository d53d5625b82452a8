// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/memory_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "collectives/backends.h"
#include "collectives/host_values.h"
#include "launch/console.h"
#include "launch/run_device.h"
#include "launch/workbench.h"

namespace zero {

MemoryByClass plan_memory(const TrainConfig& config, int rank, int world, std::string_view backend,
                          Memory memory) {
  const auto communicator = planning::communicator(rank, world, backend);
  const auto device = plan_device(config, memory);
  Mesh mesh(*communicator, config.mesh);
  const Workbench workbench(config, mesh, *device);
  return device->ledger().snapshot().peak;
}

std::int64_t model_state_bytes(const MemoryByClass& bytes) {
  const auto of = [&](MemoryClass c) { return bytes[static_cast<std::size_t>(c)]; };
  return of(MemoryClass::parameters) + of(MemoryClass::gradients) + of(MemoryClass::optimizer);
}

MemoryReport merge_memory(Communicator& communicator, Device& device, const MemoryByClass& planned,
                          const MemoryByClass& peak) {
  // planned | peak | model states | whether they differ
  std::array<std::int64_t, 2 * kMemoryClasses + 2> values{};
  std::copy(planned.begin(), planned.end(), values.begin());
  std::copy(peak.begin(), peak.end(), values.begin() + kMemoryClasses);
  values[2 * kMemoryClasses] = model_state_bytes(peak);
  values[2 * kMemoryClasses + 1] = planned == peak ? 0 : 1;
  host_all_reduce(communicator, device, View::of(std::span<std::int64_t>(values)), ReduceOp::max,
                  {"memory report", {}});
  MemoryReport report;
  std::copy_n(values.begin(), kMemoryClasses, report.planned.begin());
  std::copy_n(values.begin() + kMemoryClasses, kMemoryClasses, report.peak.begin());
  report.model_state_bytes = values[2 * kMemoryClasses];
  report.exact = values[2 * kMemoryClasses + 1] == 0;
  return report;
}

nlohmann::json MemoryReport::json() const {
  nlohmann::json all;
  for (const MemoryClass c : all_memory_classes()) {
    const auto i = static_cast<std::size_t>(c);
    all[std::string(name_of(c))] = {{"planned", planned[i]}, {"peak", peak[i]}};
  }
  return all;
}

std::string MemoryReport::table() const {
  const auto row = [](std::string_view name, std::int64_t plan, std::int64_t used) {
    return fmt::format("  {:<14} {:>12} {:>12}\n", name, bytes_text(static_cast<double>(plan)),
                       bytes_text(static_cast<double>(used)));
  };
  std::string text = fmt::format("  {:<14} {:>12} {:>12}\n", "memory", "planned", "peak");
  for (const MemoryClass c : all_memory_classes()) {
    const auto i = static_cast<std::size_t>(c);
    if (planned[i] != 0 || peak[i] != 0) text += row(name_of(c), planned[i], peak[i]);
  }
  return text + row("sum", std::accumulate(planned.begin(), planned.end(), std::int64_t{0}),
                    std::accumulate(peak.begin(), peak.end(), std::int64_t{0}));
}

}  // namespace zero
