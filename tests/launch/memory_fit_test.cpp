// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/memory_fit.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "launch/process/quantity.h"
#include "tests/launch/config_with.h"

// What a run that does not fit its memory is told of optimizer states in a file.
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A run with `key` of the section `prefix` does not fit what the run of `wide` takes, and is told
/// that it would with `advice`.
void expect_offer(const std::vector<std::string>& wide, const std::string& prefix,
                  const std::string& key, const std::string& advice) {
  const std::int64_t usual = planned_rank_bytes(config_with(wide), BackendKind::local);
  std::vector<std::string> keys = wide;
  keys.insert(keys.end(), {prefix + key, fmt::format("run.memory_limit={}", usual)});
  const TrainConfig config = config_with(keys);
  const RankPlans plans = plan_ranks(config, BackendKind::local);
  ASSERT_GT(planned_rank_bytes(plans), usual) << key;
  EXPECT_THAT(
      error_of([&] { check_memory_limit(config, BackendKind::local, plans); }),
      AllOf(HasSubstr(fmt::format("{}{}: {}, which fits", prefix, advice, size_text(usual))),
            Not(HasSubstr("none is enough"))));
}

TEST(MemoryFit, OffersUsualWindowsAndTheWholeShareOfStatesInFiles) {
  const std::string prefix = "zero_optimization.offload_optimizer.";
  const std::vector<std::string> wide{"run.device=cpu",       "run.threads=1",
                                      "model.width=512",      "bf16.enabled=true",
                                      prefix + "device=nvme", prefix + "nvme_path=/nowhere"};
  for (const auto& [key, advice] : {std::pair{"buffer_size=2e9", "buffer_size 1048576"},
                                    {"buffer_count=64", "buffer_count 4"},
                                    {"ratio=0.25", "ratio 1.0"}}) {
    expect_offer(wide, prefix, key, advice);
  }
}

TEST(MemoryFit, OffersUsualBuffersAndShardsInFilesThatWereKeptInMemory) {
  const std::string prefix = "zero_optimization.offload_param.";
  const std::vector<std::string> wide{"run.device=cpu",
                                      "run.threads=1",
                                      "model.width=512",
                                      "model.layers=6",
                                      "bf16.enabled=true",
                                      "zero_optimization.stage=3",
                                      "zero_optimization.stage3_param_persistence_threshold=1000",
                                      prefix + "device=nvme",
                                      prefix + "nvme_path=/nowhere"};
  for (const auto& [key, advice] :
       {std::pair{"buffer_count=5", "buffer_count 2"}, {"max_in_cpu=1e9", "max_in_cpu 0"}}) {
    expect_offer(wide, prefix, key, advice);
  }
}

}  // namespace
}  // namespace zero::testing
