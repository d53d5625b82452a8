// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/attention.h"
#include "ops/cuda/make_ops.h"

namespace zero::cuda {

// Built without cuDNN: our own kernels compute attention.
std::unique_ptr<Attention> make_cudnn_attention(Device& /*device*/) { return nullptr; }

std::string cudnn_version() {
  return "not in this build, whose own kernels compute attention (launch/install_cuda.sh brings "
         "it)";
}

}  // namespace zero::cuda
