// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "ops/cuda/make_inference_ops.h"

namespace zero::cuda {

std::unique_ptr<InferenceOps> make_inference_ops(Device& device) {
  fail(
      "device {}: this build has no CUDA kernels; build with -DZERO_CUDA=ON "
      "(launch/install_cuda.sh brings what it takes)",
      device.name());
}

}  // namespace zero::cuda
