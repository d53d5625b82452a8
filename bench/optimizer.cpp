// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/arena.h"
#include "bench/section.h"
#include "bench/synthetic_model.h"
#include "bench/timing.h"
#include "collectives/backends.h"
#include "engine/engine.h"

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

constexpr std::int64_t kWidth = 768;

using Parameters = std::vector<ParameterSpec>;

/// The units of GPT-2 124M: 124,439,808 parameters.
std::vector<std::pair<std::string, Parameters>> gpt2_units() {
  constexpr std::int64_t c = kWidth;
  const Parameters block = {{"ln_1.weight", {c}},
                            {"ln_1.bias", {c}},
                            {"attn.qkv.weight", {c, 3 * c}},
                            {"attn.qkv.bias", {3 * c}},
                            {"attn.out.weight", {c, c}},
                            {"attn.out.bias", {c}},
                            {"ln_2.weight", {c}},
                            {"ln_2.bias", {c}},
                            {"mlp.up.weight", {c, 4 * c}},
                            {"mlp.up.bias", {4 * c}},
                            {"mlp.down.weight", {4 * c, c}},
                            {"mlp.down.bias", {c}}};
  std::vector<std::pair<std::string, Parameters>> units{
      {"embedding", {{"tokens", {50257, c}}, {"positions", {1024, c}}}}};
  for (int layer = 0; layer < 12; ++layer) units.emplace_back(fmt::format("h.{}", layer), block);
  units.emplace_back("ln_f", Parameters{{"weight", {c}}, {"bias", {c}}});
  return units;
}

/// An engine of one rank that holds GPT-2 124M and takes its leases without computing: gradients
/// are what the first micro-batch left where they are written.
class Boundary {
 public:
  Boundary(int threads, DType gradient)
      : communicator_(local::single()),
        device_(cpu::open({.threads = threads})),
        engine_(*communicator_, *device_, options(gradient)) {
    for (auto& [name, parameters] : gpt2_units()) {
      counts_.push_back(static_cast<int>(parameters.size()));
      units_.push_back(engine_.add_unit(name, std::move(parameters)));
    }
    engine_.seal();
    micro_batch([this](const View& values) { fill(values); });
    step();
  }

  std::int64_t elements() const { return engine_.parameter_count(); }

  /// Takes all leases: starts the reductions.
  void reduce() {
    micro_batch([](const View&) {});
    device_->communication().synchronize();
  }
  void step() { static_cast<void>(engine_.step({.learning_rate = 1e-4})); }

 private:
  static EngineOptions options(DType gradient) {
    EngineOptions options = measured_options(0);
    options.gradient = gradient;
    return options;
  }

  void micro_batch(const std::function<void(const View&)>& write) {
    for (const UnitId unit : units_) static_cast<void>(engine_.forward(unit));
    for (std::size_t i = units_.size(); i-- > 0;) {
      const GradientLease lease = engine_.backward(units_[i]);
      for (int parameter = 0; parameter < counts_[i]; ++parameter) write(lease.gradient(parameter));
    }
  }

  void fill(const View& gradient) {
    std::vector<float> values(1 << 16, 1e-4F);
    const auto all = static_cast<std::int64_t>(values.size());
    for (std::int64_t begin = 0; begin < gradient.count(); begin += all) {
      const std::int64_t count = std::min(all, gradient.count() - begin);
      device_->kernels().convert(device_->compute(), View::of(std::span(values)).slice(0, count),
                                 gradient.slice(begin, count));
    }
    device_->compute().synchronize();
  }

  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Device> device_;
  Engine engine_;
  std::vector<UnitId> units_;
  std::vector<int> counts_;  ///< parameters of each unit
};

/// The fused update alone, of as many elements, without an engine.
class Update {
 public:
  Update(int threads, std::int64_t count, DType gradient)
      : device_(cpu::open({.threads = threads})), optimizer_(make_optimizer({}, *device_)) {
    const auto make = [&](DType dtype) {
      buffers_.push_back(device_->allocate(count, dtype, MemoryClass::other, "update"));
      device_->kernels().zero(device_->compute(), buffers_.back().view());
      return buffers_.back().view();
    };
    arguments_.master = make(DType::fp32);
    arguments_.moments = {make(DType::fp32), make(DType::fp32)};
    arguments_.gradient = make(gradient);
    arguments_.compute = make(DType::bf16);
    arguments_.learning_rate = 1e-4;
  }
  void run() { optimizer_->update(device_->compute(), arguments_); }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<Buffer> buffers_;
  UpdateArguments arguments_;
};

/// One thing that is measured: bytes per parameter that it must move, and seconds per round.
struct BoundaryPart {
  std::string name;
  std::int64_t bytes = 0;
  std::vector<double> seconds{};

  double rate(std::int64_t elements) const {
    return static_cast<double>(bytes * elements) * 1e-9 / summary(seconds).median;
  }
};

void measure(int threads, DType gradient, const MemoryRates& memory, Report& report) {
  Boundary boundary(threads, gradient);
  const std::int64_t elements = boundary.elements();
  Update update(threads, elements, gradient);
  const std::int64_t fused = 24 + size_of(gradient) + 2;  // master, moments; gradient; bf16 copy
  // At world 1 a bf16 gradient is only read for its norm; an fp32 one is written from bf16.
  const std::int64_t reduce = gradient == DType::bf16 ? 2 : 2 + 4;
  BoundaryPart alone{"GPT-2 124M, fused AdamW alone", fused};
  BoundaryPart reduced{"GPT-2 124M, norm of the gradient", reduce};
  BoundaryPart stepped{"GPT-2 124M, Engine::step", fused};
  BoundaryPart whole{"GPT-2 124M, norm and Engine::step", reduce + fused};
  for (int round = 0; round <= kRounds; ++round) {
    const double first = seconds_of([&] { update.run(); });
    const double second = seconds_of([&] { boundary.reduce(); });
    const double third = seconds_of([&] { boundary.step(); });
    if (round == 0) continue;  // warms up
    alone.seconds.push_back(first);
    reduced.seconds.push_back(second);
    stepped.seconds.push_back(third);
    whole.seconds.push_back(second + third);
  }
  // The kernel alone has more streams than copy, triad and read, and can be faster than they.
  const double limit = std::max(memory.best(), alone.rate(elements));
  for (const BoundaryPart& part : {alone, reduced, stepped, whole}) {
    report.add(
        {.section = "optimizer",
         .name = part.name,
         .bytes = part.bytes * elements,
         .dtype = std::string(name_of(gradient)),
         .value = part.rate(elements),
         .best = static_cast<double>(part.bytes * elements) * 1e-9 / summary(part.seconds).best,
         .unit = "GB/s",
         .limit = limit});
  }
}

/// Measures the boundary of an optimizer step of GPT-2 124M in the engine, world 1, with `threads`
/// threads: the norm of the gradients, Engine::step on reduced gradients, and both together; in
/// turn with them, the fused kernel alone over as many elements. The limit is memory bandwidth: the
/// best of `memory` and the kernel alone.
void measure_boundary(int threads, const MemoryRates& memory, Report& report) {
  for (const DType gradient : {DType::bf16, DType::fp32}) {
    measure(threads, gradient, memory, report);
  }
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
