// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels.h"

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>

#include "device/device.h"
#include "optim/optimizer.h"
#include "timing.h"

namespace zero::bench {
namespace {

constexpr int kRounds = 7;
constexpr std::int64_t kCount = 16 << 20;  // elements: beyond the caches in any dtype

struct Case {
  Row row;
  std::function<void()> body;
};

/// Times the cases in turn and fills in their rates; row.bytes is what one call must move.
void measure(std::vector<Case> cases, const MemoryRates& memory, Report& report) {
  std::vector<std::function<void()>> bodies;
  for (const Case& each : cases) bodies.push_back(each.body);
  const std::vector<Timing> timings = interleaved(bodies, kRounds);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Row row = std::move(cases[i].row);
    const double giga = static_cast<double>(row.bytes) * 1e-9;
    row.value = giga / timings[i].median;
    row.best = giga / timings[i].best;
    row.unit = "GB/s";
    row.limit = memory.triad;
    report.add(std::move(row));
  }
}

Buffer filled(Device& device, DType dtype) {
  Buffer buffer = device.allocate(kCount, dtype, MemoryClass::other, "bench");
  device.kernels().zero(device.compute(), buffer.view());
  return buffer;
}

}  // namespace

void measure_kernels(int threads, const MemoryRates& memory, Report& report) {
  const auto device = cpu::open({.threads = threads});
  Stream& stream = device->compute();
  Kernels& kernels = device->kernels();
  std::vector<Case> cases;
  std::vector<Buffer> inputs;
  const Buffer floats = filled(*device, DType::fp32);
  const Buffer halves = filled(*device, DType::bf16);
  cases.push_back(
      {{.section = "kernels", .name = "convert to bf16", .bytes = kCount * 6, .dtype = "fp32"},
       [&] { kernels.convert(stream, floats.view(), halves.view()); }});
  cases.push_back(
      {{.section = "kernels", .name = "convert to fp32", .bytes = kCount * 6, .dtype = "bf16"},
       [&] { kernels.convert(stream, halves.view(), floats.view()); }});
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    std::vector<View> views;
    for (int i = 0; i < 8; ++i) {
      inputs.push_back(filled(*device, dtype));
      views.push_back(inputs.back().view());
    }
    const View destination = dtype == DType::bf16 ? halves.view() : floats.view();
    for (const int count : {1, 2, 4, 8}) {
      const std::vector<View> some(views.begin(), views.begin() + count);
      cases.push_back(
          {{.section = "kernels",
            .name = fmt::format("tree_reduce of {} with norm", count),
            .bytes = kCount * size_of(dtype) * (count + 1),
            .dtype = std::string(name_of(dtype))},
           [&, some, destination] {
             kernels.tree_reduce(
                 stream, some,
                 {.addends = {}, .destination = destination, .norm = std::make_shared<ExactSum>()});
           }});
    }
  }
  measure(std::move(cases), memory, report);
}

void measure_optimizers(int threads, const MemoryRates& memory, Report& report) {
  const auto device = cpu::open({.threads = threads});
  const Buffer master = filled(*device, DType::fp32);
  const Buffer first = filled(*device, DType::fp32);
  const Buffer second = filled(*device, DType::fp32);
  const Buffer gradient = filled(*device, DType::bf16);
  const Buffer compute = filled(*device, DType::bf16);
  const UpdateArguments arguments{.master = master.view(),
                                  .moments = {first.view(), second.view()},
                                  .gradient = gradient.view(),
                                  .compute = compute.view(),
                                  .learning_rate = 1e-3,
                                  .weight_decay = 0.1};
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  std::vector<Case> cases;
  using Kind = OptimizerConfig::Kind;
  for (const Kind kind : {Kind::adamw, Kind::adam, Kind::sgd}) {
    OptimizerConfig config{.kind = kind};
    if (kind == Kind::sgd) config.momentum = 0.9;
    optimizers.push_back(make_optimizer(config, *device));
    Optimizer& optimizer = *optimizers.back();
    const std::int64_t bytes = kCount * (8 + 8 * optimizer.moments() + 2 + 2);
    cases.push_back({{.section = "optimizer",
                      .name = fmt::format("{} update", name_of(kind)),
                      .bytes = bytes,
                      .dtype = "bf16"},
                     [&] { optimizer.update(device->compute(), arguments); }});
  }
  measure(std::move(cases), memory, report);
}

}  // namespace zero::bench
