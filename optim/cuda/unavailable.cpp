// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.h"

namespace zero::cuda {

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config) {
  fail(
      "{}: this build has no optimizer kernels for a CUDA device; configure with -DZERO_CUDA=ON "
      "(launch/install_cuda.sh brings CUDA), or use a CPU device",
      name_of(config.kind));
}

}  // namespace zero::cuda
