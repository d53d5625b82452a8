// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <driver_types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "device/device.h"
#include "ops/ops.h"

namespace zero::cuda {

struct AttentionOperands {
  View qkv, out, logsumexp;
  View dout{}, dqkv{};  ///< of backward
  void* scratch = nullptr;
};

/// The attention of Ops on a CUDA stream. Deterministic: no float atomics.
class Attention {
 public:
  virtual ~Attention() = default;
  Attention() = default;
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  /// Why the shape is not supported; empty if it is.
  virtual std::string refusal(const AttentionShape& shape) const = 0;
  /// Prepares forward and backward of a supported shape.
  virtual void prepare(const AttentionShape& shape) = 0;
  /// Bytes of scratch for either; depend on the shape only, also on a planning device.
  virtual std::int64_t scratch_bytes(const AttentionShape& shape) const = 0;
  virtual void forward(cudaStream_t stream, const AttentionShape& shape,
                       const AttentionOperands& operands) = 0;
  virtual void backward(cudaStream_t stream, const AttentionShape& shape,
                        const AttentionOperands& operands) = 0;
};

/// Our own kernels: every dtype of Ops, heads of up to 256 elements, fp32 arithmetic without tensor
/// cores.
std::unique_ptr<Attention> make_plain_attention();
/// cuDNN's; null if the engine was built without it.
std::unique_ptr<Attention> make_cudnn_attention(Device& device);

}  // namespace zero::cuda
