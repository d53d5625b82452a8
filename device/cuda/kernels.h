// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "device/cuda/handles.h"
#include "device/kernels.h"

namespace zero::cuda {

void free_device(void* data);
void free_host(void* data);
using DeviceMemory = Handle<void*, free_device>;
using HostMemory = Handle<void*, free_host>;

/// The vector primitives on a CUDA device: checks at the call, then kernels, copies and fills in
/// the native queue. Takes its scratch when it is made, but for generate(), which is for starting.
class CudaKernels final : public Kernels {
 public:
  /// For reductions on these streams; `processors` is the device's number of multiprocessors.
  CudaKernels(std::vector<const Stream*> streams, int processors);

  void convert(Stream& stream, View from, View to) override;
  void zero(Stream& stream, View view) override;
  void poison(Stream& stream, View view) override;
  /// Calls `source` at once, on all of the host's threads, while earlier pieces are on their way.
  void generate(Stream& stream, View to, Source source) override;
  void tree_reduce(Stream& stream, std::vector<View> inputs, ReduceEpilogue epilogue) override;
  void combine(Stream& stream, std::vector<View> inputs, ReduceOp op, View to) override;

 private:
  /// Where the norm of a stream's reductions is summed; reused in the stream's order.
  struct NormMemory {
    const Stream* stream;
    DeviceMemory limbs;
    HostMemory copy;
  };
  /// A piece of pinned memory, and whether the upload from it is over.
  struct Piece {
    HostMemory memory;
    Event uploaded;
  };

  const NormMemory& norm_of(const Stream& stream) const;
  static void merge_norm(Stream& stream, const NormMemory& memory, std::shared_ptr<ExactSum> norm);

  std::vector<NormMemory> norms_;
  std::array<Piece, 2> pieces_;
  int blocks_;
};

}  // namespace zero::cuda
