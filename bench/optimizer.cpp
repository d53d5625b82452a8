// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.h"

#include <fmt/format.h>

#include <memory>

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
    measure_rates(std::move(cases), memory, report);
  }
};

}  // namespace

std::unique_ptr<Section> optimizer_section() { return std::make_unique<Updates>(); }

}  // namespace zero::bench
