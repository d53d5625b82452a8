// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>

#include "bench/collectives.h"
#include "bench/product_probe.h"
#include "bench/product_rate.h"
#include "bench/section.h"
#include "bench/timing.h"
#include "launch/telemetry/machine_limits.h"

namespace zero::bench {
namespace {

using Layout = ProductProbe::Layout;

std::vector<Row> measure(DType dtype, int threads) {
  std::vector<std::unique_ptr<ProductProbe>> probes;
  std::vector<std::string> names;
  for (const ProbeShape& shape : gpt2_probe_shapes()) {
    for (const Layout layout : {Layout::packed, Layout::plain}) {
      probes.push_back(std::make_unique<ProductProbe>(shape, dtype, layout, threads));
      names.push_back(
          fmt::format("product {} {}", shape.name, layout == Layout::packed ? "packed" : "plain"));
    }
  }
  std::vector<std::function<void()>> bodies;
  for (const auto& probe : probes) bodies.emplace_back([&probe] { probe->run(); });
  const std::vector<Timing> timings = interleaved(bodies, kRounds);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < probes.size(); ++i) {
    const ProbeShape& s = probes[i]->shape();
    rows.push_back({.section = "limits",
                    .name = names[i],
                    .bytes = (s.m * s.k + s.k * s.n + s.m * s.n) * size_of(dtype),
                    .dtype = std::string(name_of(dtype)),
                    .value = s.flop() * 1e-9 / timings[i].median,
                    .best = s.flop() * 1e-9 / timings[i].best,
                    .unit = "GFLOP/s"});
  }
  return rows;
}

Row multiply_adds(int threads) {
  std::vector<double> rates;
  multiply_add_rate(DType::fp32, threads);
  for (int round = 0; round < kRounds; ++round)
    rates.push_back(multiply_add_rate(DType::fp32, threads) * 1e-9);
  return {.section = "limits",
          .name = "multiply-adds in registers",
          .dtype = "fp32",
          .value = median_rate(rates),
          .best = std::ranges::max(rates),
          .unit = "GFLOP/s"};
}

/// Measures oneDNN's matrix products in bf16 and fp32 at GPT-2's shapes with `threads` threads,
/// with operands in oneDNN's preferred layout (packed) and in plain row-major. The limit is the
/// best of them and of multiply-adds in registers. Adds its rows.
void measure_products(int threads, Report& report) {
  const Row registers = multiply_adds(threads);
  report.add(registers);
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    if (!ProductProbe::available(dtype)) {
      report.note(fmt::format(
          "oneDNN has no {} products on this machine, or this build has no oneDNN; what "
          "multiplies them stands beside the rate of fp32",
          name_of(dtype)));
      continue;
    }
    std::vector<Row> rows = measure(dtype, threads);
    double limit = registers.value;
    for (const Row& row : rows) limit = std::max(limit, row.value);
    for (Row& row : rows) {
      row.limit = limit;
      report.add(std::move(row));
    }
    report.add({.section = "limits",
                .name = "product rate",
                .dtype = std::string(name_of(dtype)),
                .value = limit,
                .best = limit,
                .unit = "GFLOP/s"});
  }
}

/// What this machine can do at most: products, memory, the link between ranks.
class Limits final : public Section {
 public:
  std::string name() const override { return "limits"; }
  std::string summary() const override {
    return "product rate, memory bandwidth, link between ranks";
  }
  void run(Context& context) override {
    context.alone([&] { measure_products(context.threads(), context.report()); });
    const MemoryRates& memory = context.memory();
    measure_collectives(context.communicator(), link_cases(), memory, context.report());
  }
};

}  // namespace

std::unique_ptr<Section> limits_section() { return std::make_unique<Limits>(); }

}  // namespace zero::bench
