// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>

#include "base/error.h"
#include "bench/limits.h"
#include "bench/timing.h"
#include "launch/product_probe.h"

namespace zero::bench {
namespace {

constexpr int kRounds = 7;

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

}  // namespace

void measure_products(int threads, Report& report) {
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    try {
      std::vector<Row> rows = measure(dtype, threads);
      double limit = 0;
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
    } catch (const Error& error) {
      report.note(error.what());
    }
  }
}

}  // namespace zero::bench
