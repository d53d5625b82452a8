// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "ops/cuda/make_ops.h"
#include "ops/inference_ops.h"
#include "ops/ops.h"

namespace zero::cuda {
namespace {

[[noreturn]] void fail_without_kernels(const Device& device) {
  fail(
      "device {}: this build has no CUDA kernels; build with -DZERO_CUDA=ON "
      "(launch/install_cuda.sh brings what it takes)",
      device.name());
}

}  // namespace

std::unique_ptr<Ops> make_ops(Device& device) { fail_without_kernels(device); }

std::unique_ptr<InferenceOps> make_inference_ops(Device& device) { fail_without_kernels(device); }

std::string cublaslt_version() { return "not in this build"; }
std::string cudnn_version() { return "not in this build"; }

}  // namespace zero::cuda
