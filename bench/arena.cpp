// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/arena.h"

#include <utility>

#include "bench/section.h"
#include "bench/timing.h"

namespace zero::bench {
namespace {

constexpr std::int64_t kArena = std::int64_t{512} << 20;  // bytes: what one call moves, about

}  // namespace

Arena::Arena(Device& device)
    : buffer_(device.allocate(kArena, DType::u8, MemoryClass::other, "arena")) {
  device.kernels().zero(device.compute(), buffer_.view());
}

std::int64_t Arena::count_for(std::int64_t bytes) { return kArena / bytes / 4096 * 4096; }

View Arena::take(std::int64_t count, DType dtype) {
  const std::int64_t bytes = count * size_of(dtype);
  const View view = buffer_.slice(used_, bytes).reinterpret(dtype, count);
  used_ += bytes;
  return view;
}

void measure_rates(std::vector<RateCase> cases, const MemoryRates& memory, Report& report) {
  std::vector<std::function<void()>> bodies;
  for (const RateCase& each : cases) bodies.push_back(each.body);
  const std::vector<Timing> timings = interleaved(bodies, kRounds);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Row row = std::move(cases[i].row);
    const double giga = static_cast<double>(row.bytes) * 1e-9;
    row.value = giga / timings[i].median;
    row.best = giga / timings[i].best;
    row.unit = "GB/s";
    row.limit = memory.best();
    report.add(std::move(row));
  }
}

}  // namespace zero::bench
