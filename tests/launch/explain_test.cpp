// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

// Every figure of zero_plan --explain, which docs/plan.md repeats.
namespace zero::testing {
namespace {

using ::testing::HasSubstr;

TEST(Explained, LlamaOfSevenBillion) {
  const std::string text = explained({});
  EXPECT_THAT(text, HasSubstr("fp32    28 + 28 + 56 = 112 GB\n"));
  EXPECT_THAT(text, HasSubstr("fp16    14 + 14 + 28 = 56 GB: not offered"));
  EXPECT_THAT(text, HasSubstr("int8     7 + 7 + 14 = 28 GB: not offered"));
  EXPECT_THAT(text, HasSubstr("parameters in two types 42, gradients 14, moments 56 = 112 GB"));
  // 6,738,415,616 x 16 = 107,814,649,856.
  EXPECT_THAT(text, HasSubstr("6738415616 parameters x 16 B = 107.8 GB (100.41 GiB)"));
}

TEST(Explained, SmallModelInGibibytes) {
  const std::string text = explained({});
  EXPECT_THAT(text, HasSubstr("parameters                     0.329 GiB\n"));
  EXPECT_THAT(text, HasSubstr("with gradients and a momentum  0.988 GiB\n"));
  EXPECT_THAT(text, HasSubstr("with Adam's two moments        1.318 GiB\n"));
  EXPECT_THAT(text, HasSubstr("introductions print 0.345, 1.036 and 1.38: 88.44 x 4 / 1024"));
}

TEST(Explained, StatesByStageForAnyParametersAndRanks) {
  const std::string usual = explained({});
  for (const char* total : {"120.0 GB", "31.4 GB", "16.6 GB", "1.9 GB"}) {
    EXPECT_THAT(usual, HasSubstr(total));
  }
  const std::string other = explained({.parameters = 1'000'000'000, .ranks = 8});
  EXPECT_THAT(other, HasSubstr("1000000000 parameters over 8 ranks"));
  EXPECT_THAT(other, HasSubstr("5.5 GB   1000000000, 1000000000, 125000000"));  // 4 + 12 / 8
  EXPECT_THAT(other, HasSubstr("2.0 GB   125000000, 125000000, 125000000"));    // 16 / 8
}

TEST(Explained, ActivationsWithAndWithoutRecompute) {
  const std::string text = explained({});
  // Blocks 0, 4 and 8 keep their input alone; what the last of them computes again has places of
  // tensors that blocks behind it have given back. A row of a block without its input: qkv 3 C,
  // attended C, middle C, hidden 4 C in 4 B, 8 B of the second norm, 4 B for each of 12 heads:
  // 27,704 B; 2048 rows x 3 blocks are 162.3 MiB.
  EXPECT_EQ((3 + 1 + 1 + 4) * 768 * 4 + 8 + 12 * 4, 27'704);
  EXPECT_THAT(text, HasSubstr("kept whole                  757.50 MiB\n"));
  EXPECT_THAT(text, HasSubstr("interval 4: blocks 0, 4, 8  601.17 MiB, 156.33 MiB less; 5.5 % of"));
  EXPECT_THAT(text, HasSubstr("88439808 parameters"));
}

TEST(Explained, BytesByPrecision) {
  const std::string text = explained({});
  EXPECT_THAT(text, HasSubstr("fp32, 4           26.95 GB (25.10 GiB)"));
  EXPECT_THAT(text, HasSubstr("fp16 and bf16, 2  13.48 GB (12.55 GiB)"));
  EXPECT_THAT(text, HasSubstr("int8, 1           6.74 GB (6.28 GiB)"));
  EXPECT_THAT(text, HasSubstr("4 bits, 0.5       3.37 GB (3.14 GiB)"));
}

TEST(Explained, CacheOfKeysAndValues) {
  EXPECT_THAT(explained({}), HasSubstr("2 x 32 x 32 x 128 x 2048 x 2 B = 1.07 GB (1.00 GiB)"));
  // 4 x 2000 tokens, and 112 + 304 + 704 + 2000, of 524,288 B.
  EXPECT_THAT(explained({}), HasSubstr("contiguous 4.19 GB (3.91 GiB), in blocks of 16 tokens 1.64 "
                                       "GB (1.52 GiB): 61 % less"));
}

TEST(Explained, EveryEstimateSaysWhatItLeavesOut) {
  const std::string text = explained({});
  const auto times = [&](const std::string& of) {
    std::ptrdiff_t count = 0;
    for (std::size_t at = text.find(of); at != std::string::npos; at = text.find(of, at + 1)) {
      ++count;
    }
    return count;
  };
  EXPECT_EQ(times("\n  leaves out: "), 6);
  EXPECT_EQ(times("\n\n"), 6);
}

}  // namespace
}  // namespace zero::testing
