// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/kernels.h"
#include "device/view.h"

/// The Kernels of cpu::open() as synchronous calls on host memory, for work that already runs on a
/// stream, such as the CPU's collectives. Each uses at most `threads` threads; the results do not
/// depend on their number.
namespace zero::cpu {

/// Throws zero::Error unless `to` can take convert(from): equal counts, dtypes that convert, and no
/// overlap but an equal start with elements of `to` not larger.
void check_convert(const View& from, const View& to);
/// Kernels::convert. Checks its arguments.
void convert(const View& from, const View& to, int threads = 1);
/// Kernels::zero.
void zero(const View& view, int threads = 1);
/// Kernels::poison.
void poison(const View& view, int threads = 1);

/// Throws zero::Error unless counts, dtypes and overlaps are what ReduceEpilogue and
/// Kernels::tree_reduce allow.
void check_tree_reduce(std::span<const View> inputs, const ReduceEpilogue& epilogue);
/// Kernels::tree_reduce. Checks its arguments. One pass over the memory, in blocks that stay in the
/// L1 cache.
void tree_reduce(std::span<const View> inputs, const ReduceEpilogue& epilogue, int threads = 1);

/// Throws zero::Error unless counts, dtypes and overlaps are what Kernels::combine allows.
void check_combine(std::span<const View> inputs, const View& to);
/// Kernels::combine. Checks its arguments.
void combine(std::span<const View> inputs, ReduceOp op, const View& to);

/// The SIMD target that CPU kernels dispatch to on this machine ("AVX3_SPR", "AVX2", ...).
std::string_view simd_target();
/// Device::bits() of devices that run these kernels.
std::string bits();

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
