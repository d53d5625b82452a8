// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// When shards of parameters are fetched from the file.
#include "engine/shard_fetches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "tests/engine/plain.h"
#include "tests/engine/small_windows.h"

namespace zero::testing {
namespace {

/// Counts the transfers that a stream starts to read.
class ReadCounter final : public StreamListener {
 public:
  bool listens() const noexcept override { return true; }
  void ran(std::string_view what, Mark /*begin*/, Mark /*end*/) noexcept override {
    if (what == "read of a file tier") ++reads_;
  }
  void waited(std::string_view /*meter*/, Mark /*begin*/, Mark /*end*/) noexcept override {}
  std::size_t reads() const { return reads_; }

 private:
  std::size_t reads_ = 0;
};

TEST(ShardFetches, RunAheadAsSlotsAllowButNotBeyondTheMicroBatchOrBesideUpdates) {
  for (const int buffers : {1, 2, 4}) {
    plain::Setup setup{plain::options(3, DType::bf16), plain::equal_units(6, 5'000)};
    setup.engine.limits.prefetch_elements = 0;
    setup.engine.tiers = with_shards(small_windows(kLateFolder), Tier::device, buffers);
    setup.states_disk = late_disk;
    plain::run(1, setup, [&](plain::Trainer& trainer, Communicator&) {
      Engine& engine = trainer.engine();
      trainer.step();
      ReadCounter counter;
      engine.device().transfer().listen(&counter);
      const Schedule& schedule = engine.schedule();
      const std::size_t begun = schedule.begin.size();  // behind the update
      const auto all = static_cast<std::size_t>(schedule.gathers);
      std::size_t gathers = begun;
      std::size_t at = 0;
      const auto expect_fetches = [&] {
        gathers += schedule.steps[at++].gathers.size();
        const std::size_t ahead = gathers + static_cast<std::size_t>(buffers) - 1;
        EXPECT_EQ(begun + counter.reads(), std::min(ahead, all)) << "compute step " << at;
      };
      for (const UnitId unit : trainer.units()) {
        const ParameterLease lease = engine.forward(unit);
        expect_fetches();
      }
      for (std::size_t unit = trainer.units().size(); unit-- > 0;) {
        const GradientLease lease = engine.backward(trainer.units()[unit]);
        engine.device().kernels().zero(engine.device().compute(), lease.gradient(0));
        expect_fetches();
      }
      engine.step({});
      EXPECT_EQ(counter.reads(), all);
      engine.device().transfer().listen(nullptr);
    });
  }
}

/// What an evaluation right behind seal() sees of units of which a micro-batch uses the last first.
std::vector<float> evaluated_at_once(const TierOptions& tiers) {
  std::vector<float> all;
  local::run(1, [&](Communicator& communicator) {
    const auto device = cpu::open();
    const auto disk = late_disk(communicator.rank());
    EngineOptions options = plain::options(3, DType::bf16);
    options.limits.prefetch_elements = 0;
    options.tiers = tiers;
    options.tiers.file.disk = disk.get();
    Engine engine(communicator, *device, options);
    std::vector<UnitId> units;
    for (const char* const name : {"a", "b", "c", "d", "e", "f"})
      units.push_back(engine.add_unit(name, {{"weight", {5000}, init::normal(1.0F)}}));
    std::vector<Use> order;
    for (const UnitId unit : units) order.push_back({unit, Phase::forward});
    for (const Phase phase : {Phase::recompute, Phase::backward}) {
      for (const UnitId unit : units)
        order.insert(phase == Phase::recompute ? order.begin() : order.end(), Use{unit, phase});
    }
    engine.seal({.order = order});
    engine.begin_evaluation();
    for (const UnitId unit : units) {
      const ParameterLease lease = engine.forward(unit);
      const std::vector<float> values = plain::seen(engine, lease.at(0));
      all.insert(all.end(), values.begin(), values.end());
    }
    engine.end_evaluation();
  });
  return all;
}

// A slot that is still read into must not be given to the next fetch: the disk may end them in any
// order, and this one says that it must not.
TEST(ShardFetches, ThatAreDroppedEndBeforeTheirSlotsAreUsedAgain) {
  const std::vector<float> expected = evaluated_at_once({});
  for (const int buffers : {1, 2, 3, 4, 6}) {
    EXPECT_EQ(evaluated_at_once(with_shards(small_windows(kLateFolder), Tier::device, buffers)),
              expected)
        << buffers << " buffers";
  }
}

}  // namespace
}  // namespace zero::testing
