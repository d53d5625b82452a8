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
  void defer_norm(const std::shared_ptr<ExactSum>& norm) override;
  void flush_norms(Stream& stream) override;
  void combine(Stream& stream, std::vector<View> inputs, ReduceOp op, View to) override;

 private:
  using Norm = KernelScratch::Norm;

  /// Which of the two streams, whose reductions sum their norm in memory of their own, in the
  /// stream's order.
  std::size_t index_of(Stream& stream) const;
  bool is_deferred(const std::shared_ptr<ExactSum>& norm) const;
  /// Adds what stays on the device to its norm, in the stream's order.
  void flush(Stream& stream, std::size_t at);

  std::array<const Stream*, 2> streams_;
  std::vector<std::weak_ptr<ExactSum>> deferred_;
  std::array<std::shared_ptr<ExactSum>, 2> pending_;  // to be added to; null: nothing stays
  KernelScratch scratch_;
  std::array<Event, 2> uploaded_;  // from each of the scratch's pieces
  int blocks_;
};

}  // namespace zero::cuda
