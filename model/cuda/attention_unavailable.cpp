// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/cuda/attention.h"

namespace zero::cuda {

// Built without cuDNN: our own kernels compute attention.
std::unique_ptr<Attention> make_cudnn_attention(Device& /*device*/) { return nullptr; }

}  // namespace zero::cuda
