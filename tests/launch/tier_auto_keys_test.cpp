// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/config_with.h"
#include "tests/launch/tier_keys.h"

// The keys of model states whose place "auto" decides, before it does.
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Overrides kStatesAuto{"run.device=cpu", "run.threads=1", kOffloadOptimizer + "device=auto"};
const Overrides kBothAuto =
    plus(kStatesAuto, {"zero_optimization.stage=3", kOffloadParam + "device=auto"});

TEST(AutoTierKeys, BeginInMemoryWithAFolderForLater) {
  const TrainConfig both = config_with(plus(kBothAuto, {kOffloadParam + "nvme_path=/fast"}));
  EXPECT_TRUE(tiers_are_auto(both.values));
  EXPECT_FALSE(uses_file(both.engine.tiers));
  EXPECT_EQ(both.engine.tiers.file.folder, "/fast");
  EXPECT_EQ(tier_folder_key(both.values), kOffloadParam + "nvme_path");
  EXPECT_EQ(config_with(kStatesAuto).engine.tiers.file.folder, "") << "none is needed yet";
  const TrainConfig stage2 = config_with(
      plus(plus(kBothAuto, {kOffloadParam + "nvme_path=/fast"}), {"zero_optimization.stage=2"}));
  EXPECT_EQ(stage2.engine.tiers.file.folder, "") << "ranks have no shards for that one";
  EXPECT_FALSE(tiers_are_auto(config_with(all_keys("/fast")).values));
}

TEST(AutoTierKeys, MustFitTheOthers) {
  EXPECT_THAT(refusal_with(plus(
                  kBothAuto, {kOffloadOptimizer + "nvme_path=/a", kOffloadParam + "nvme_path=/b"})),
              HasSubstr("but a rank has one file for both; give one folder"));
  EXPECT_THAT(refusal_with(plus(kBothAuto, {kOffloadParam + "device=nvme"})),
              AllOf(HasSubstr(kOffloadParam + "device is \"nvme\" without"),
                    HasSubstr(kOffloadParam + "nvme_path: give the folder")));
  EXPECT_THAT(refusal_with(plus(kStatesAuto, {"zero_optimization.cpu_offload=true"})),
              HasSubstr("device \"cpu\", but that is \"auto\"; leave the first out"));
}

// Templates of Hugging Face leave "auto" to their own command line.
TEST(AutoTierKeys, OfTemplatesAreTheSame) {
  const auto file = parse_json_text(
      R"({"model": {"layers": 2, "width": 64, "heads": 4, "context": 32, "vocabulary": 256},
          "data": {"train": "a.bin"}, "train_batch_size": 8,
          "zero_optimization": {"stage": 3,
            "offload_optimizer": {"device": "auto", "nvme_path": "auto", "pin_memory": "auto"},
            "offload_param": {"device": "auto", "nvme_path": "auto", "buffer_count": "auto"}}})",
      "c.json");
  for (const char* const device : {"run.device=cpu", "run.device=cuda"}) {
    const TrainConfig found =
        make_train_config(Configuration::from_json(file, "c.json", {device, "run.threads=1"}), 1);
    EXPECT_TRUE(tiers_are_auto(found.values)) << device;
    EXPECT_EQ(found.engine.tiers.optimizer, Tier::device) << device;
    EXPECT_EQ(found.engine.tiers.file.folder, "") << device;
  }
}

}  // namespace
}  // namespace zero::testing
