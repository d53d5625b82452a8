// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <span>

#include "tests/engine/small_windows.h"
#include "tests/engine/toy_run.h"
#include "tests/engine/wait_sites.h"
#include "tests/support/test_device.h"

namespace zero::toy {
namespace {

using testing::StreamOrder;

/// The runs among which a missing wait must show: stages, accumulation and prefetch that exercise
/// every site.
std::vector<Job> runs() {
  std::vector<Job> all;
  for (const int stage : {1, 3}) {
    for (const int steps : {1, 2}) {
      Job run{.world = 2,
              .engine = options(stage, DType::bf16),
              .accumulation_steps = steps,
              .steps = 2};
      run.engine.limits.prefetch_elements = 700;
      all.push_back(run);
    }
  }
  all.push_back(all.back());
  all.back().engine.limits.persistence_threshold = 30;  // small parameters stay whole
  all.push_back(all.back());
  all.back().read_rounds = 5;
  all.push_back({.world = 2, .engine = options(3, DType::bf16), .steps = 2});
  all.back().shape = {.layers = 1, .width = 136, .vocabulary = 13, .rows = 2};  // several windows
  all.back().engine.tiers = testing::small_windows(testing::kLateFolder, 2);
  all.back().states_disk = testing::late_disk;
  all.push_back({.world = 2, .engine = options(3, DType::bf16), .steps = 2});
  all.back().shape.layers = 5;  // the slots turn
  all.back().engine.limits.prefetch_elements = 1300;
  all.back().engine.tiers = testing::with_shards(testing::small_windows(testing::kLateFolder, 2));
  all.back().states_disk = testing::late_disk;
  return all;
}

std::vector<StreamOrder> orders() {
  std::vector<StreamOrder> all{{.policy = StreamOrder::Policy::lazy}};
  for (std::uint64_t seed = 0; seed < 6; ++seed)
    all.push_back({.policy = StreamOrder::Policy::seeded, .seed = seed});
  return all;
}

/// Whether some order on a device of such memory gives other bits than the run on plain streams in
/// host memory, with nothing away, or an error.
bool noticed(const Job& run, MemorySpace memory = MemorySpace::host) {
  Job plain = run;
  plain.skipped.reset();
  if (memory == MemorySpace::device) plain.engine.tiers = {};
  const Result expected = train(plain);
  for (const StreamOrder& order : orders()) {
    Job ordered = run;
    ordered.order = order;
    ordered.order->memory = memory;
    try {
      if (!train(ordered).same_training(expected)) return true;
    } catch (const Error&) {
      return true;
    }
  }
  return false;
}

TEST(Waits, CompleteEngineGivesTheSameBitsInEveryOrder) {
  for (const Job& run : runs()) EXPECT_FALSE(noticed(run));
}

constexpr std::array kOfStates{WaitSite::states_before_update, WaitSite::update_before_write};
constexpr std::array kOfShards{WaitSite::fetch_before_gather, WaitSite::gather_before_fetch};

TEST(Waits, OfStatesInHostMemoryAreEnoughAndAllNeeded) {
  Job run{.world = 2, .engine = options(3, DType::bf16), .steps = 2};
  run.shape = {.layers = 1, .width = 136, .vocabulary = 13, .rows = 2};  // several windows
  run.engine.tiers = testing::host_windows(2);
  EXPECT_FALSE(noticed(run, MemorySpace::device));
  for (const WaitSite site : kOfStates) {
    run.skipped = site;
    EXPECT_TRUE(noticed(run, MemorySpace::device)) << name_of(site);
  }
}

TEST(Waits, OfShardsInHostMemoryAreEnoughAndAllNeeded) {
  Job run{.world = 2, .engine = options(3, DType::bf16), .steps = 2};
  run.shape.layers = 5;  // the slots turn
  run.engine.limits.prefetch_elements = 1300;
  for (const Tier optimizer : {Tier::device, Tier::host}) {
    run.engine.tiers = testing::with_host_shards(testing::host_windows(2), optimizer);
    run.skipped.reset();
    EXPECT_FALSE(noticed(run, MemorySpace::device));
    for (const WaitSite site : kOfShards) {
      run.skipped = site;
      EXPECT_TRUE(noticed(run, MemorySpace::device)) << name_of(site);
    }
  }
}

// Values pass through windows in host memory, each with a twin in the device's.
TEST(Waits, OfAFileBesideADeviceWithMemoryOfItsOwnAreEnoughAndAllNeeded) {
  Job run{.world = 2, .engine = options(3, DType::bf16), .steps = 2};
  run.states_disk = testing::late_disk;
  const auto expect_needed = [&](std::span<const WaitSite> sites) {
    run.skipped.reset();
    EXPECT_FALSE(noticed(run, MemorySpace::device));
    for (const WaitSite site : sites) {
      run.skipped = site;
      EXPECT_TRUE(noticed(run, MemorySpace::device)) << name_of(site);
    }
  };
  run.shape = {.layers = 1, .width = 136, .vocabulary = 13, .rows = 2};  // several windows
  run.engine.tiers = testing::small_windows(testing::kLateFolder, 2);
  expect_needed(kOfStates);
  run.shape = {.layers = 5};  // the slots turn
  run.engine.limits.prefetch_elements = 1300;
  run.engine.tiers = testing::with_shards(testing::small_windows(testing::kLateFolder, 2));
  expect_needed(kOfShards);
}

class EachWait : public ::testing::TestWithParam<WaitSite> {};

TEST_P(EachWait, IsNoticedWhenLeftOut) {
  bool any = false;
  for (Job run : runs()) {
    run.skipped = GetParam();
    any = any || noticed(run);
  }
  EXPECT_TRUE(any) << name_of(GetParam()) << " was left out and no stream order noticed";
}

INSTANTIATE_TEST_SUITE_P(Sites, EachWait, ::testing::ValuesIn(kWaitSites),
                         [](const ::testing::TestParamInfo<WaitSite>& site) {
                           return std::string(name_of(site.param));
                         });

}  // namespace
}  // namespace zero::toy
