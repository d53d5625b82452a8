// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/kernels.h"

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "device/device.h"
#include "optim/optimizer.h"

namespace zero::bench {
namespace {

constexpr int kRounds = 7;
constexpr std::int64_t kArena = std::int64_t{512} << 20;  // bytes: what one call moves, about

/// The memory all cases share, so that each can move far more than the caches hold. All zero, which
/// every case leaves so.
class Arena {
 public:
  explicit Arena(Device& device)
      : buffer_(device.allocate(kArena, DType::u8, MemoryClass::other, "arena")) {
    device.kernels().zero(device.compute(), buffer_.view());
  }
  /// Elements of a case that touches `bytes` bytes per element, once each.
  static std::int64_t count_for(std::int64_t bytes) { return kArena / bytes / 4096 * 4096; }
  void restart() { used_ = 0; }
  View take(std::int64_t count, DType dtype) {
    const std::int64_t bytes = count * size_of(dtype);
    const View view = buffer_.slice(used_, bytes).reinterpret(dtype, count);
    used_ += bytes;
    return view;
  }

 private:
  Buffer buffer_;
  std::int64_t used_ = 0;
};

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
    row.limit = memory.best();
    report.add(std::move(row));
  }
}

Case conversion(Device& device, Arena& arena, DType from_dtype, DType to_dtype) {
  arena.restart();
  const std::int64_t count = Arena::count_for(size_of(from_dtype) + size_of(to_dtype));
  const View from = arena.take(count, from_dtype);
  const View to = arena.take(count, to_dtype);
  return {{.section = "kernels",
           .name = fmt::format("convert to {}", name_of(to_dtype)),
           .bytes = from.bytes() + to.bytes(),
           .dtype = std::string(name_of(from_dtype))},
          [&device, from, to] { device.kernels().convert(device.compute(), from, to); }};
}

Case reduction(Device& device, Arena& arena, DType dtype, int inputs) {
  arena.restart();
  const std::int64_t count = Arena::count_for(size_of(dtype) * (inputs + 1));
  std::vector<View> views;
  for (int i = 0; i < inputs; ++i) views.push_back(arena.take(count, dtype));
  const View to = arena.take(count, dtype);
  return {{.section = "kernels",
           .name = fmt::format("tree_reduce of {} with norm", inputs),
           .bytes = to.bytes() * (inputs + 1),
           .dtype = std::string(name_of(dtype))},
          [&device, views, to] {
            device.kernels().tree_reduce(
                device.compute(), views,
                {.addends = {}, .destination = to, .norm = std::make_shared<ExactSum>()});
          }};
}

Case update(Device& device, Arena& arena, const std::shared_ptr<Optimizer>& optimizer) {
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

}  // namespace

void measure_kernels(int threads, const MemoryRates& memory, Report& report) {
  const auto device = cpu::open({.threads = threads});
  Arena arena(*device);
  std::vector<Case> cases{conversion(*device, arena, DType::fp32, DType::bf16),
                          conversion(*device, arena, DType::bf16, DType::fp32)};
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    for (const int inputs : {1, 2, 4, 8}) {
      cases.push_back(reduction(*device, arena, dtype, inputs));
    }
  }
  measure(std::move(cases), memory, report);
}

void measure_optimizers(int threads, const MemoryRates& memory, Report& report) {
  const auto device = cpu::open({.threads = threads});
  Arena arena(*device);
  std::vector<Case> cases;
  using Kind = OptimizerConfig::Kind;
  for (const Kind kind : {Kind::adamw, Kind::adam, Kind::sgd}) {
    OptimizerConfig config{.kind = kind};
    if (kind == Kind::sgd) config.momentum = 0.9;
    cases.push_back(update(*device, arena, make_optimizer(config, *device)));
  }
  measure(std::move(cases), memory, report);
}

}  // namespace zero::bench
