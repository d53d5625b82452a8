// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/architectures.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace zero::cuda {
namespace {

/// Those of the capabilities of GPUs, "8.0 9.0", that run code built for `architectures`.
std::string served(std::string_view architectures) {
  const std::vector<Capability> gpus{{7, 5},  {8, 0},  {8, 6},  {8, 9},  {9, 0}, {10, 0},
                                     {10, 3}, {11, 0}, {12, 0}, {12, 1}, {13, 0}};
  std::string text;
  for (const Capability gpu : gpus) {
    if (!has_code_for(architectures, gpu)) continue;
    text += (text.empty() ? "" : " ") + std::to_string(gpu.major) + "." + std::to_string(gpu.minor);
  }
  return text;
}

constexpr std::string_view kAll = "7.5 8.0 8.6 8.9 9.0 10.0 10.3 11.0 12.0 12.1 13.0";

TEST(Architectures, MachineCodeRunsOnLaterMinorVersionsAlone) {
  EXPECT_EQ(served("80-real"), "8.0 8.6 8.9");
  EXPECT_EQ(served("86-real"), "8.6 8.9");
  EXPECT_EQ(served("90-real"), "9.0");
  EXPECT_EQ(served("100-real"), "10.0 10.3");
  EXPECT_EQ(served("121-real"), "12.1");
}

TEST(Architectures, PtxRunsOnAllLaterGpus) {
  EXPECT_EQ(served("89"), "8.9 9.0 10.0 10.3 11.0 12.0 12.1 13.0");
  EXPECT_EQ(served("86-virtual"), "8.6 8.9 9.0 10.0 10.3 11.0 12.0 12.1 13.0");
  EXPECT_EQ(served("103"), "10.3 11.0 12.0 12.1 13.0");
}

TEST(Architectures, CodeOfOneArchitectureRunsOnThatAndOfAFamilyWithinIt) {
  for (const std::string_view ending : {"", "-real", "-virtual"}) {
    EXPECT_EQ(served("90a" + std::string(ending)), "9.0") << ending;
    EXPECT_EQ(served("100a" + std::string(ending)), "10.0") << ending;
    EXPECT_EQ(served("100f" + std::string(ending)), "10.0 10.3") << ending;
    EXPECT_EQ(served("103f" + std::string(ending)), "10.3") << ending;
  }
}

TEST(Architectures, OfAListAnyIsEnough) {
  EXPECT_EQ(served("80-real;90a-real"), "8.0 8.6 8.9 9.0");
  EXPECT_EQ(served("90a-real;80;100-virtual"), "8.0 8.6 8.9 9.0 10.0 10.3 11.0 12.0 12.1 13.0");
  EXPECT_EQ(served("80-real, 90a-real"), "8.0 8.6 8.9 9.0");
  EXPECT_EQ(served(";90a-real;"), "9.0");
  EXPECT_EQ(served(""), "");
}

TEST(Architectures, WordsThatNameNoNumberLeaveTheAnswerToTheFirstKernel) {
  for (const std::string_view word : {"native", "all", "all-major", "OFF"}) {
    EXPECT_EQ(served(word), kAll) << word;
  }
}

TEST(Architectures, TheOneOfAGpuHasCodeForIt) {
  EXPECT_EQ(architecture_of({8, 0}), "80-real");
  EXPECT_EQ(architecture_of({12, 1}), "121-real");
  EXPECT_TRUE(has_code_for(architecture_of({10, 3}), {10, 3}));
}

}  // namespace
}  // namespace zero::cuda
