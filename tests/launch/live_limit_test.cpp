// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "launch/train/plan.h"
#include "tests/launch/config_with.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;

/// The plan of six blocks of 12 x 8192 x 8192 large parameters over 64 ranks, with other keys.
Plan plan_of_large_blocks(std::vector<std::string> keys) {
  for (const char* key : {"model.layers=6", "model.width=8192", "model.heads=64",
                          "bf16.enabled=true", "zero_optimization.stage=3", "train_batch_size=64"})
    keys.emplace_back(key);
  return make_plan(config_with(keys, 64), BackendKind::mpi);
}

TEST(LiveLimit, OfLargeBlocksGrowsAndIsSaid) {
  const Plan plan = plan_of_large_blocks({});
  EXPECT_EQ(plan.peak_live_elements, std::int64_t{2} * 12 * 8192 * 8192);
  constexpr const char* kLine =
      "\n1610612736 elements are gathered at once, above 1000000000, as "
      "zero_optimization.stage3_max_live_parameters is not given: the two largest units";
  EXPECT_THAT(plan.text(LiveMemory::Labels::largest, false), HasSubstr(kLine));
  EXPECT_THAT(plan.text(LiveMemory::Labels::largest, true), HasSubstr(kLine));
}

TEST(LiveLimit, ThatIsGivenHoldsAndIsSaidToHoldBack) {
  const Plan plan =
      plan_of_large_blocks({"zero_optimization.stage3_max_live_parameters=1000000000"});
  EXPECT_LE(plan.peak_live_elements, 1'000'000'000);
  EXPECT_THAT(plan.text(LiveMemory::Labels::largest, false),
              HasSubstr("\nzero_optimization.stage3_max_live_parameters is 1000000000, and the two "
                        "largest units that follow one another have 1610612736 elements"));
}

TEST(LiveLimit, IsNotSpokenOfWhereItChangesNothing) {
  const auto line = [](std::vector<std::string> keys) {
    keys.emplace_back("zero_optimization.stage=3");
    return make_plan(config_with(keys, 64), BackendKind::mpi).live_limit;
  };
  EXPECT_EQ(line({"train_batch_size=64"}), "");
  EXPECT_EQ(line({"train_batch_size=64", "zero_optimization.stage3_max_live_parameters=1e9"}), "");
  EXPECT_EQ(plan_of_large_blocks({"zero_optimization.stage3_prefetch_bucket_size=5e7"}).live_limit,
            "");
  EXPECT_EQ(plan_of_large_blocks({"zero_optimization.stage3_prefetch_bucket_size=5e7",
                                  "zero_optimization.stage3_max_live_parameters=1e9"})
                .live_limit,
            "");
}

}  // namespace
}  // namespace zero::testing
