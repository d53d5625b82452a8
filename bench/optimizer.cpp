// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.h"

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/arena.h"
#include "bench/boundary.h"
#include "bench/section.h"

namespace zero::bench {
namespace {

RateCase update(Device& device, Arena& arena, const std::shared_ptr<Optimizer>& optimizer) {
  arena.restart();
  const int moments = optimizer->moments();
  const std::int64_t count = Arena::count_for(4 + 4 * moments + 2 + 2);
  UpdateArguments arguments{.master = arena.take(count, DType::fp32),
                            .moments = {},
                            .gradient = arena.take(count, DType::bf16),
                            .compute = arena.take(count, DType::bf16),
                            .learning_rate = 1e-3};
  for (int i = 0; i < moments; ++i) {
    arguments.moments.at(static_cast<std::size_t>(i)) = arena.take(count, DType::fp32);
  }
  return {{.section = "optimizer",
           .name = fmt::format("{} update", name_of(optimizer->config().kind)),
           .bytes = count * (8 + 8 * moments + 2 + 2),
           .dtype = "bf16"},
          [&device, optimizer, arguments] { optimizer->update(device.compute(), arguments); }};
}

/// AdamW's update with moments of a format, in memory of its own and with gradients that are not
/// zero: blocks of zeros have no codes to look for. The rates of the formats, each over the bytes
/// that it must move, stand beside each other.
RateCase update_of_values(Device& device, MomentFormat format) {
  constexpr std::int64_t kCount = std::int64_t{1} << 23;
  const bool coded = format == MomentFormat::eight_bit;
  const std::shared_ptr<Optimizer> optimizer = make_optimizer({.moments = format}, device);
  auto buffers = std::make_shared<std::vector<Buffer>>();
  const auto take = [&](std::int64_t count, DType dtype) {
    buffers->push_back(device.allocate(count, dtype, MemoryClass::other, "update"));
    device.kernels().zero(device.compute(), buffers->back().view());
    return buffers->back().view();
  };
  UpdateArguments arguments{.master = take(kCount, DType::fp32),
                            .moments = {},
                            .gradient = take(kCount, DType::bf16),
                            .compute = take(kCount, DType::bf16),
                            .learning_rate = 1e-6};
  for (std::size_t i = 0; i < 2; ++i) {
    arguments.moments.at(i) = take(kCount, moment_dtype(format));
    if (coded) arguments.scales.at(i) = take(kCount / kMomentBlock, DType::fp32);
  }
  std::uint32_t random = 1;
  for (bfloat16& value : arguments.gradient.as<bfloat16>()) {
    random = random * 1664525 + 1013904223;
    value = to_bfloat16((static_cast<float>(random >> 8) * 0x1p-23F - 1) * 1e-3F);
  }
  const std::int64_t moments =
      4 * kCount * size_of(moment_dtype(format)) + (coded ? 16 * kCount / kMomentBlock : 0);
  return {
      {.section = "optimizer",
       .name = fmt::format("AdamW update of values, moments {}", name_of(format)),
       .bytes = kCount * (8 + 2 + 2) + moments,
       .dtype = "bf16"},
      [&device, optimizer, arguments, buffers] { optimizer->update(device.compute(), arguments); }};
}

/// One fused update of each optimizer, then the boundary of a step of GPT-2 124M.
class Updates final : public Section {
 public:
  std::string name() const override { return "optimizer"; }
  std::string summary() const override {
    return "fused updates, and the whole end of a step, against the memory";
  }
  void run(Context& context) override {
    const MemoryRates& memory = context.memory();
    context.alone([&] {
      measure(context.threads(), memory, context.report());
      measure_boundary(context.threads(), memory, context.report());
    });
  }

 private:
  static void measure(int threads, const MemoryRates& memory, Report& report) {
    const auto device = cpu::open({.threads = threads});
    Arena arena(*device);
    std::vector<RateCase> cases;
    using Kind = OptimizerConfig::Kind;
    for (const Kind kind : {Kind::adamw, Kind::adam, Kind::sgd}) {
      OptimizerConfig config{.kind = kind};
      if (kind == Kind::sgd) config.momentum = 0.9;
      cases.push_back(update(*device, arena, make_optimizer(config, *device)));
    }
    for (const MomentFormat moments :
         {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::eight_bit}) {
      cases.push_back(update_of_values(*device, moments));
    }
    measure_rates(std::move(cases), memory, report);
  }
};

}  // namespace

std::unique_ptr<Section> optimizer_section() { return std::make_unique<Updates>(); }

}  // namespace zero::bench
