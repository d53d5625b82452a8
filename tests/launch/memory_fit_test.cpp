// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/memory_fit.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "launch/process/quantity.h"
#include "tests/launch/config_with.h"
#include "tests/launch/cut_run.h"

// What a run that does not fit its memory is told of optimizer states in a file.
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kInMemory{"run.device=cpu", "run.threads=1"};
const std::vector<std::string> kInFile =
    plus(kInMemory, {"zero_optimization.offload_optimizer.device=nvme",
                     "zero_optimization.offload_optimizer.nvme_path=/nowhere"});

TEST(MemoryFit, OfferFilesToARunThatDoesNotFit) {
  const auto refusal = [](const std::vector<std::string>& keys) {
    const TrainConfig config = config_with(plus(keys, {"run.memory_limit=100KiB"}));
    const RankPlans plans = plan_ranks(config, BackendKind::local);
    return error_of([&] { check_memory_limit(config, BackendKind::local, plans); });
  };
  const std::vector<std::string> wide{"model.width=512", "bf16.enabled=true",
                                      "zero_optimization.offload_optimizer.buffer_size=4096"};
  EXPECT_THAT(refusal(plus(kInMemory, wide)),
              HasSubstr("zero_optimization.offload_optimizer.device \"nvme\": "));
  EXPECT_THAT(refusal(plus(kInFile, wide)), Not(HasSubstr("\"nvme\": ")));
}

TEST(MemoryFit, OfferUsualWindowsAndTheWholeShareToARunThatDoesNotFit) {
  const std::vector<std::string> wide = plus(kInFile, {"model.width=512", "bf16.enabled=true"});
  const std::int64_t usual = planned_rank_bytes(config_with(wide), BackendKind::local);
  const std::string prefix = "zero_optimization.offload_optimizer.";
  for (const auto& [key, advice] : {std::pair{"buffer_size=2e9", "buffer_size 1048576"},
                                    {"buffer_count=64", "buffer_count 4"},
                                    {"ratio=0.25", "ratio 1.0"}}) {
    const TrainConfig config =
        config_with(plus(wide, {prefix + key, fmt::format("run.memory_limit={}", usual)}));
    const RankPlans plans = plan_ranks(config, BackendKind::local);
    ASSERT_GT(planned_rank_bytes(plans), usual) << key;
    EXPECT_THAT(
        error_of([&] { check_memory_limit(config, BackendKind::local, plans); }),
        AllOf(HasSubstr(fmt::format("{}{}: {}, which fits", prefix, advice, size_text(usual))),
              Not(HasSubstr("none is enough"))));
  }
}

}  // namespace
}  // namespace zero::testing
