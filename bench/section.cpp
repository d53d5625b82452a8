// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/section.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <span>
#include <thread>

#include "base/error.h"
#include "bench/timing.h"
#include "collectives/backends.h"
#include "collectives/store.h"
#include "launch/telemetry/machine_limits.h"

namespace zero::bench {
namespace {

constexpr std::chrono::milliseconds kNap{10};

Row memory_row(const char* name, std::int64_t bytes, const std::vector<double>& seconds) {
  const double giga = static_cast<double>(bytes) * 1e-9;
  const Timing timing = summary(seconds);
  return {.section = "limits",
          .name = name,
          .bytes = bytes,
          .dtype = "fp32",
          .value = giga / timing.median,
          .best = giga / timing.best,
          .unit = "GB/s"};
}

/// Measures the memory with `threads` threads on arrays beyond the caches; adds its rows.
MemoryRates measure_memory(int threads, Report& report) {
  MemoryProbe probe(threads);
  for (int round = 0; round <= kRounds; ++round) probe.pass();
  const std::int64_t bytes = MemoryProbe::array_bytes();
  const Row copy = memory_row("memory copy", 2 * bytes, probe.seconds().copy);
  const Row triad = memory_row("memory triad", 3 * bytes, probe.seconds().triad);
  const Row read = memory_row("memory read", bytes, probe.seconds().read);
  for (const Row& row : {copy, triad, read}) report.add(row);
  return {.copy = copy.value, .triad = triad.value, .read = read.value};
}

}  // namespace

void Context::alone(const std::function<void()>& body) {
  const std::string turn = fmt::format("bench/alone/{}", turns_++);
  if (rank() == 0) {
    body();
    communicator_.store().set(turn, "done");
    return;
  }
  // Waiting inside a collective would wake up far more often, on the cores that are measured.
  while (!communicator_.store().find(turn)) std::this_thread::sleep_for(kNap);
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
                          {.purpose = "memory rates"});
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
  sections.push_back(chunks_section());
  sections.push_back(faults_section());
  sections.push_back(train_section());
  sections.push_back(memory_section());
  sections.push_back(inference_section());
  sections.push_back(serving_section());
  sections.push_back(gpu_section());
  sections.push_back(checkpoint_section());
  sections.push_back(tiers_section());
  sections.push_back(compare_section());
  return sections;
}

}  // namespace zero::bench
