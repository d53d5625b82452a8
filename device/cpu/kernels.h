// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "device/kernels.h"

namespace zero::cpu {

/// The vector primitives on host memory: checks at the call, then work on the stream. Work of the
/// stream `compute` uses `threads` threads, work of other streams one: the compute stream owns the
/// cores.
class CpuKernels final : public Kernels {
 public:
  CpuKernels(const Stream& compute, int threads) : compute_(compute), threads_(threads) {}

  void convert(Stream& stream, View from, View to) override;
  void zero(Stream& stream, View view) override;
  void poison(Stream& stream, View view) override;
  void generate(Stream& stream, View to, Source source) override;
  void tree_reduce(Stream& stream, std::vector<View> inputs, ReduceEpilogue epilogue) override;
  void combine(Stream& stream, std::vector<View> inputs, ReduceOp op, View to) override;

 private:
  int threads_on(Stream& stream) const { return &stream == &compute_ ? threads_ : 1; }

  const Stream& compute_;
  int threads_;
};

}  // namespace zero::cpu
