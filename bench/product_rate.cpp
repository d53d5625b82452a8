// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/product_rate.h"

#include <algorithm>
#include <chrono>

#include "base/median.h"
#include "base/seconds_since.h"
#include "launch/telemetry/machine_limits.h"

namespace zero::bench {

const std::vector<ProbeShape>& gpt2_probe_shapes() {
  static const std::vector<ProbeShape> shapes{
      {"124m qkv", 2048, 2304, 768},        {"124m attention out", 2048, 768, 768},
      {"124m mlp up", 2048, 3072, 768},     {"124m mlp down", 2048, 768, 3072},
      {"124m head chunk", 512, 50257, 768}, {"350m mlp up", 2048, 4096, 1024},
  };
  return shapes;
}

ProductRate::ProductRate(DType dtype, int threads, const std::vector<ProbeShape>& shapes)
    : asked_(dtype),
      dtype_(ProductProbe::available(dtype) ? dtype : DType::fp32),
      threads_(threads),
      seconds_(shapes.size()) {
  if (!ProductProbe::available(dtype_)) return;
  for (const ProbeShape& shape : shapes) {
    probes_.push_back(
        std::make_unique<ProductProbe>(shape, dtype_, ProductProbe::Layout::packed, threads));
  }
}

double ProductRate::sample(int repeats) {
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    probes_[i]->run();
    for (int repeat = 0; repeat < repeats; ++repeat) {
      const auto start = std::chrono::steady_clock::now();
      probes_[i]->run();
      seconds_[i].push_back(seconds_since(start));
    }
  }
  multiply_add_rate(DType::fp32, threads_);
  for (int repeat = 0; repeat < repeats; ++repeat) {
    multiply_adds_.push_back(multiply_add_rate(DType::fp32, threads_));
  }
  return rate_of_newest(static_cast<std::size_t>(repeats));
}

double ProductRate::rate() const {
  return multiply_adds_.empty() ? 0 : rate_of_newest(multiply_adds_.size());
}

double ProductRate::rate_of_newest(std::size_t samples) const {
  const auto newest_rates = multiply_adds_.end() - static_cast<std::ptrdiff_t>(samples);
  double best = median({newest_rates, multiply_adds_.end()});
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    const auto end = seconds_[i].end();
    const std::vector<double> newest(end - static_cast<std::ptrdiff_t>(samples), end);
    best = std::max(best, probes_[i]->shape().flop() / median(newest));
  }
  return best;
}

}  // namespace zero::bench
