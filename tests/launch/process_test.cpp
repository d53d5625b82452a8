// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "launch/process/cpu_limit.h"
#include "launch/process/versions.h"
#include "tests/launch/environment_of.h"

namespace zero {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Process, VersionsAreNamed) {
  EXPECT_THAT(version_text(),
              ::testing::AllOf(HasSubstr("zero "), HasSubstr("MPI: "), HasSubstr("NCCL: "),
                               HasSubstr("vector instructions: "), HasSubstr("CUDA: "),
                               HasSubstr("cuBLASLt: "), HasSubstr("cuDNN: "),
                               HasSubstr("CUDA of the driver: ")));
}

TEST(Process, InstructionsHaveTheNameThatPeopleKnow) {
  EXPECT_EQ(instructions_text("AVX2"), "AVX2");
  EXPECT_EQ(instructions_text("NEON"), "NEON");
  EXPECT_EQ(instructions_text("AVX3_SPR"), "AVX-512 (Highway's target AVX3_SPR)");
}

TEST(CpuLimits, NameOneOfTheKnownInstructionSets) {
  EXPECT_THAT(
      [] {
        limit_cpu(testing::environment_of({{"ZERO_MAX_CPU_ISA", "SSE9"}}));
      },
      ThrowsMessage<Error>(HasSubstr("ZERO_MAX_CPU_ISA is \"SSE9\"; expected AVX2, AVX512, "
                                     "AVX512_BF16 or AMX, or unset it")));
  EXPECT_NO_THROW(limit_cpu(testing::environment_of({})));
}

TEST(CpuLimits, AreSaidBesideTheInstructions) {
  EXPECT_EQ(cpu_limit_text(testing::environment_of({{"ZERO_MAX_CPU_ISA", "AVX512"}})),
            " (ZERO_MAX_CPU_ISA=AVX512)");
  EXPECT_EQ(cpu_limit_text(testing::environment_of({})), "");
}

}  // namespace
}  // namespace zero
