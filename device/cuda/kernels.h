// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "device/kernel_scratch.h"
#include "device/kernels.h"

namespace zero::cuda {

/// The vector primitives on a CUDA device: checks at the call, then kernels, copies and fills in
/// the native queue. Takes its scratch when it is made.
class CudaKernels final : public Kernels {
 public:
  /// For a device whose streams are made, and which must outlive it; `processors` is its number of
  /// multiprocessors.
  CudaKernels(Device& device, int processors);

  void convert(Stream& stream, View from, View to) override;
  void zero(Stream& stream, View view) override;
  void poison(Stream& stream, View view) override;
  /// Calls `source` at once, on all of the host's threads, while earlier pieces are on their way.
  void generate(Stream& stream, View to, Source source) override;
  void tree_reduce(Stream& stream, std::vector<View> inputs, ReduceEpilogue epilogue) override;
  void combine(Stream& stream, std::vector<View> inputs, ReduceOp op, View to) override;

 private:
  using Norm = KernelScratch::Norm;

  /// Where the norm of a stream's reductions is summed; reused in the stream's order.
  const Norm& norm_of(const Stream& stream) const;
  static void merge_norm(Stream& stream, const Norm& memory, std::shared_ptr<ExactSum> norm);

  std::array<const Stream*, 2> streams_;
  KernelScratch scratch_;
  std::array<Event, 2> uploaded_;  // from each of the scratch's pieces
  int blocks_;
};

}  // namespace zero::cuda
