// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "bench/product_probe.h"

namespace zero::bench {

/// GPT-2 124M and 350M at 2048 tokens; the head in chunks of 512.
const std::vector<ProbeShape>& gpt2_probe_shapes();

/// The product rate of this machine: the best of oneDNN's products and of multiply-adds in
/// registers, to be sampled in turn with the measurement it limits. If the machine has no
/// instructions for products of `dtype`, oneDNN's fp32 products replace them; a build without
/// oneDNN has the multiply-adds alone.
class ProductRate {
 public:
  ProductRate(DType dtype, int threads,
              const std::vector<ProbeShape>& shapes = gpt2_probe_shapes());
  /// Runs every shape once to warm up, then `repeats` times. Returns the rate of these runs alone.
  double sample(int repeats);
  /// FLOP/s of the best candidate, each at the median of its samples; 0 before the first sample.
  double rate() const;
  /// The dtype of oneDNN's products: the requested one, or fp32.
  DType dtype() const { return dtype_; }
  /// Suffix for the name of a row whose limit is rate(): empty, or ", limit in fp32".
  std::string_view remark() const { return dtype_ == asked_ ? "" : ", limit in fp32"; }

 private:
  /// rate() over the newest `samples` samples alone; at least as many must exist.
  double rate_of_newest(std::size_t samples) const;

  DType asked_;
  DType dtype_;
  int threads_;
  std::vector<std::unique_ptr<ProductProbe>> probes_;
  std::vector<std::vector<double>> seconds_;
  std::vector<double> multiply_adds_{};  ///< FLOP/s, one sample for each sample of a shape
};

}  // namespace zero::bench
