// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/limits.h"
#include "bench/timing.h"
#include "launch/telemetry/machine_limits.h"

namespace zero::bench {
namespace {

Row row_of(const char* name, std::int64_t bytes, const std::vector<double>& seconds) {
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

}  // namespace

MemoryRates measure_memory(int threads, Report& report) {
  MemoryProbe probe(threads);
  for (int round = 0; round <= kRounds; ++round) probe.pass();
  const std::int64_t bytes = MemoryProbe::array_bytes();
  const Row copy = row_of("memory copy", 2 * bytes, probe.seconds().copy);
  const Row triad = row_of("memory triad", 3 * bytes, probe.seconds().triad);
  const Row read = row_of("memory read", bytes, probe.seconds().read);
  for (const Row& row : {copy, triad, read}) report.add(row);
  return {.copy = copy.value, .triad = triad.value, .read = read.value};
}

}  // namespace zero::bench
