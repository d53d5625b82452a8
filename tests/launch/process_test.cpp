// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "launch/process/cpu_limit.h"
#include "launch/process/versions.h"

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

Environment only(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

TEST(CpuLimits, NameOneOfTheKnownInstructionSets) {
  EXPECT_THAT(
      [] {
        limit_cpu(only({{"ZERO_MAX_CPU_ISA", "SSE9"}}));
      },
      ThrowsMessage<Error>(HasSubstr("ZERO_MAX_CPU_ISA is \"SSE9\"; expected AVX2, AVX512, "
                                     "AVX512_BF16 or AMX, or unset it")));
  EXPECT_NO_THROW(limit_cpu(only({})));
}

TEST(CpuLimits, AreSaidBesideTheInstructions) {
  EXPECT_EQ(cpu_limit_text(only({{"ZERO_MAX_CPU_ISA", "AVX512"}})), " (ZERO_MAX_CPU_ISA=AVX512)");
  EXPECT_EQ(cpu_limit_text(only({})), "");
}

}  // namespace
}  // namespace zero
