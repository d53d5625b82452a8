// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>

#include "bench/arena.h"
#include "bench/product_rate.h"
#include "bench/section.h"
#include "bench/stepper.h"
#include "collectives/backends.h"
#include "launch/telemetry/instruments.h"
#include "launch/telemetry/machine_limits.h"
#include "launch/telemetry/profile.h"

namespace zero::bench {
namespace {

constexpr int kSteps = 3;

/// A row of an operation: its rate against whichever limit is the nearer.
Row row_of(const ProfileEntry& entry, const MachineLimits& limits, DType dtype,
           std::string_view remark) {
  const bool arithmetic = entry.flop / limits.products > entry.bytes / limits.memory;
  const double work = arithmetic ? entry.flop : entry.bytes;
  const double rate = work * 1e-9 / entry.seconds;
  return {.section = "ops",
          .name = entry.name + std::string(arithmetic ? remark : ""),
          .bytes = static_cast<std::int64_t>(entry.bytes / static_cast<double>(entry.calls)),
          .dtype = std::string(name_of(dtype)),
          .value = rate,
          .best = rate,
          .unit = arithmetic ? "GFLOP/s" : "GB/s",
          .limit = 1e-9 * (arithmetic ? limits.products : limits.memory)};
}

/// Training steps of GPT-2 124M, operation by operation, in turn with both limits.
void measure_step(DType dtype, int threads, Report& report) {
  const TrainConfig config = make_config({.dtype = dtype, .threads = threads});
  local::run(1, [&](Communicator& communicator) {
    Instruments instruments({.profile = true});
    const auto device = cpu::open({.threads = threads});
    device->compute().listen(&instruments);
    Stepper stepper(config, communicator, *device, &instruments);
    ProductRate products(dtype, threads);
    MemoryProbe memory(threads);
    for (int step = 1; step <= kSteps + 1; ++step) {
      products.sample(2);
      memory.pass();
      instruments.begin_step(step, device->compute());
      stepper.step();
      instruments.end_step(step);
      device->communication().synchronize();
    }
    instruments.stop();
    add_update_bytes(instruments.profile(), stepper.engine());
    const MachineLimits limits{.products = products.rate(), .memory = memory.rate()};
    for (const ProfileEntry& entry : instruments.profile().entries()) {
      if (entry.least_seconds(limits) > 0)
        report.add(row_of(entry, limits, dtype, products.remark()));
    }
    report.note(fmt::format("\n{}: {}", name_of(dtype), instruments.profile().table(limits)));
  });
}

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

/// Times the device's kernels that the engine calls, conversions and tree reductions, with
/// `threads` threads, against the memory's best rate; adds rows of section "ops".
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

/// What a training step is made of, piece by piece.
class OpsSection final : public Section {
 public:
  std::string name() const override { return "ops"; }
  std::string summary() const override {
    return "what a training step consists of, each against products or memory";
  }
  void run(Context& context) override {
    const MemoryRates& memory = context.memory();
    context.alone([&] {
      for (const DType dtype : {DType::bf16, DType::fp32}) {
        measure_step(dtype, context.threads(), context.report());
      }
      measure_device_kernels(context.threads(), memory, context.report());
    });
  }
};

}  // namespace

std::unique_ptr<Section> ops_section() { return std::make_unique<OpsSection>(); }

}  // namespace zero::bench
