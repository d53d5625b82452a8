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
/// the native queue. The constructor allocates the scratch.
class CudaKernels final : public Kernels {
 public:
  /// `device`, with its streams, must exist already and outlive this object; `processors` is its
  /// number of multiprocessors.
  CudaKernels(Device& device, int processors);

  void convert(Stream& stream, View from, View to) override;
  void zero(Stream& stream, View view) override;
  void poison(Stream& stream, View view) override;
  /// Calls `source` before it returns, on all host threads, while earlier pieces are being copied.
  void generate(Stream& stream, View to, Source source) override;
  void tree_reduce(Stream& stream, std::vector<View> inputs, ReduceEpilogue epilogue) override;
  void defer_norm(const std::shared_ptr<ExactSum>& norm) override;
  void flush_norms(Stream& stream) override;
  void combine(Stream& stream, std::vector<View> inputs, ReduceOp op, View to) override;

 private:
  using Norm = KernelScratch::Norm;

  /// The index of the compute or the communication stream; each sums the norm of its reductions in
  /// memory of its own, in stream order.
  std::size_t index_of(Stream& stream) const;
  bool is_deferred(const std::shared_ptr<ExactSum>& norm) const;
  /// Adds the sum accumulated on the device to its norm, in stream order.
  void flush(Stream& stream, std::size_t at);

  std::array<const Stream*, 2> streams_;
  std::vector<std::weak_ptr<ExactSum>> deferred_;
  std::array<std::shared_ptr<ExactSum>, 2> pending_;  // destinations; null: no sum
  KernelScratch scratch_;
  std::array<Event, 2> uploaded_;  // one for each of the scratch's pieces
  int blocks_;
};

}  // namespace zero::cuda
