// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "bench/arena.h"
#include "bench/ops.h"

namespace zero::bench {
namespace {

RateCase conversion(Device& device, Arena& arena, DType from_dtype, DType to_dtype) {
  arena.restart();
  const std::int64_t count = Arena::count_for(size_of(from_dtype) + size_of(to_dtype));
  const View from = arena.take(count, from_dtype);
  const View to = arena.take(count, to_dtype);
  return {{.section = "ops",
           .name = fmt::format("convert to {}", name_of(to_dtype)),
           .bytes = from.bytes() + to.bytes(),
           .dtype = std::string(name_of(from_dtype))},
          [&device, from, to] { device.kernels().convert(device.compute(), from, to); }};
}

RateCase reduction(Device& device, Arena& arena, DType dtype, int inputs) {
  arena.restart();
  const std::int64_t count = Arena::count_for(size_of(dtype) * (inputs + 1));
  std::vector<View> views;
  for (int i = 0; i < inputs; ++i) views.push_back(arena.take(count, dtype));
  const View to = arena.take(count, dtype);
  return {{.section = "ops",
           .name = fmt::format("tree_reduce of {} with norm", inputs),
           .bytes = to.bytes() * (inputs + 1),
           .dtype = std::string(name_of(dtype))},
          [&device, views, to] {
            device.kernels().tree_reduce(
                device.compute(), views,
                {.addends = {}, .destination = to, .norm = std::make_shared<ExactSum>()});
          }};
}

}  // namespace

void measure_device_kernels(int threads, const MemoryRates& memory, Report& report) {
  const auto device = cpu::open({.threads = threads});
  Arena arena(*device);
  std::vector<RateCase> cases{conversion(*device, arena, DType::fp32, DType::bf16),
                              conversion(*device, arena, DType::bf16, DType::fp32)};
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    for (const int inputs : {1, 2, 4, 8}) {
      cases.push_back(reduction(*device, arena, dtype, inputs));
    }
  }
  measure_rates(std::move(cases), memory, report);
}

}  // namespace zero::bench
