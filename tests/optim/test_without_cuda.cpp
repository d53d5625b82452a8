// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// What a build without CUDA says.
#include <gtest/gtest.h>

#include "optim/optimizer.h"
#include "tests/errors.h"

namespace zero {
namespace {

TEST(WithoutCuda, TheOptimizerSaysHowToGetIt) {
  EXPECT_EQ(
      "AdamW: this build has no optimizer kernels for a CUDA device; configure with -DZERO_CUDA=ON "
      "(launch/install_cuda.sh brings CUDA), or use a CPU device",
      error_of([] { cuda::make_optimizer({}); }));
}

TEST(WithoutCuda, TheDeviceSaysHowToGetIt) {
  EXPECT_EQ(
      "this build has no CUDA backend; configure with -DZERO_CUDA=ON (launch/install_cuda.sh "
      "brings CUDA), or use a CPU device",
      error_of([] { cuda::open(); }));
}

}  // namespace
}  // namespace zero
