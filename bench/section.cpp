// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/section.h"

#include <array>
#include <span>

#include "collectives/backends.h"

namespace zero::bench {

void Context::alone(const std::function<void()>& body) {
  if (rank() == 0) body();
  const auto device = cpu::open();
  communicator_.barrier(device->communication(), {.unit = "the first rank measures alone"});
  device->communication().synchronize();
}

const MemoryRates& Context::memory() {
  if (memory_) return *memory_;
  std::array<double, 3> rates{};
  alone([&] {
    const MemoryRates measured = measure_memory(threads_, report_);
    rates = {measured.copy, measured.triad, measured.read};
  });
  const auto device = cpu::open();
  communicator_.broadcast(View::of(std::span<double>(rates)), 0, device->communication(),
                          {.unit = "memory rates"});
  device->communication().synchronize();
  memory_ = MemoryRates{.copy = rates[0], .triad = rates[1], .read = rates[2]};
  return *memory_;
}

void Section::add_options(CLI::App& /*command*/) {}

std::vector<std::unique_ptr<Section>> all_sections() {
  std::vector<std::unique_ptr<Section>> sections;
  sections.push_back(limits_section());
  sections.push_back(ops_section());
  sections.push_back(collectives_section());
  sections.push_back(optimizer_section());
  sections.push_back(overlap_section());
  return sections;
}

}  // namespace zero::bench
