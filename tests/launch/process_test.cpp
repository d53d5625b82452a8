// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zero {
namespace {

using ::testing::HasSubstr;

TEST(Process, VersionsAreNamed) {
  EXPECT_THAT(version_text(),
              ::testing::AllOf(HasSubstr("zero "), HasSubstr("oneDNN: "), HasSubstr("MPI: "),
                               HasSubstr("NCCL: "), HasSubstr("vector instructions: "),
                               HasSubstr("CUDA: "), HasSubstr("cuBLASLt: "), HasSubstr("cuDNN: "),
                               HasSubstr("CUDA of the driver: ")));
}

}  // namespace
}  // namespace zero
