// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/compute_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/host.h"
#include "collectives/forwarding_backend.h"
#include "engine/engine.h"
#include "launch/train/run_device.h"
#include "model/model.h"
#include "tests/launch/cut_run.h"
#include "tests/launch/train_rank.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;
using Json = nlohmann::json;

const Overrides kEveryStep{"run.device=cpu", "run.check_compute_every=1"};

/// What a run's log has of values, on ranks as threads.
Json trained(int world, const Overrides& overrides) {
  const CutRun run;
  const Ended ended = run.start({.world = world, .overrides = overrides});
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.out, Not(HasSubstr("run.check_compute_every")));
  for (const Json& line : run.tiny().log()) {
    EXPECT_FALSE(line.contains("computed_wrongly")) << line;
    if (line.contains("final")) {
      EXPECT_EQ(line["plan_exact"], true);
    }
  }
  return run.results();
}

TEST(ComputeCheck, FindsNothingAndChangesNothingWhereCoresAreRight) {
  const std::vector<std::pair<int, Overrides>> runs{
      {1, {}},
      {2, {"bf16.enabled=true"}},
      {2, {"fp16.enabled=true", "fp16.initial_scale_power=8", "run.threads=2"}},
      {3, {"train_batch_size=12", "zero_optimization.stage=1"}},
      {4, {"mesh.tensor=2", "bf16.enabled=true", "run.threads=2"}},
      {4, {"mesh.tensor=2", "mesh.sequence_parallel=true"}},
      {4, {"mesh.replicate=2", "zero_optimization.stage=2"}},
      {2, {"activation_checkpointing.recompute=full"}},
      {2, {"activation_checkpointing.number_checkpoints=1", "bf16.enabled=true"}},
      {2, {"activation_checkpointing.recompute=selective"}},
      {2, {"activation_checkpointing.keep_outputs=true"}}};
  for (const auto& [world, overrides] : runs) {
    SCOPED_TRACE(fmt::format("{} ranks, {}", world, overrides.empty() ? "" : overrides[0]));
    EXPECT_EQ(trained(world, plus(overrides, kEveryStep)), trained(world, overrides));
  }
}

TEST(ComputeCheck, RefusesARunWithoutABlockThatKeepsItsInput) {
  const CutRun run;
  EXPECT_THAT(
      run.refusal({.world = 2,
                   .overrides = plus({"mesh.tensor=2", "activation_checkpointing.recompute=full",
                                      "activation_checkpointing.partition_activations=true"},
                                     kEveryStep)}),
      HasSubstr("run.check_compute_every is 1, but no block keeps its input whole, from which it "
                "could be computed again; leave it out, or set "
                "activation_checkpointing.partition_activations to false"));
}

/// A core that is wrong: flips a bit of an output in some of the passes of a check.
class WrongCore final : public BlockCheck {
 public:
  enum class Passes { first, all };
  WrongCore(ComputeCheck& inner, Passes passes) : inner_(inner), passes_(passes) {}

  bool wants(std::int64_t layer) override { return inner_.wants(layer); }
  void check(const BlockPass& pass, const std::function<void()>& again) override {
    const auto flip = [&] {
      static_cast<std::uint8_t*>(pass.outputs.front().values.data())[1] ^= std::uint8_t{4};
    };
    flip();
    inner_.check(pass, [&] {
      again();
      if (passes_ == Passes::all) flip();
    });
  }

 private:
  ComputeCheck& inner_;
  Passes passes_;
};

/// What the first rank finds in `steps` steps in which the core of rank `wrong` is wrong.
ComputeCheck::Found found_of(int world, int wrong, WrongCore::Passes passes, int steps,
                             const Overrides& overrides = {}) {
  const TinyRun run;
  ComputeCheck::Found found;
  local::run(world, [&](Communicator& communicator) {
    const TrainConfig config =
        make_train_config(Configuration::read(run.config(), plus(overrides, kEveryStep)), world);
    const auto device = cpu::open();
    Mesh mesh(communicator, config.mesh);
    TrainingState state(config, mesh, *device);
    WrongCore core(*state.compute_check(), passes);
    if (communicator.rank() == wrong) state.model().check_blocks(&core);
    for (int step = 0; step < steps; ++step) {
      for (std::int64_t j = 0; j < config.batch.accumulation; ++j) {
        for (const View& tokens : {state.inputs(j), state.targets(j)}) {
          std::int32_t id = 3 * mesh.data().rank() + step;
          for (std::int32_t& token : tokens.as<std::int32_t>()) {
            id = (id * 7 + 1) & 255;
            token = id;
          }
        }
        state.model().train(state.inputs(j), state.targets(j), 0.01F, state.loss());
        device->compute().synchronize();
      }
      state.engine().step({.learning_rate = 1e-3});
    }
    const ComputeCheck::Found mine = state.compute_check()->take();
    EXPECT_THAT(state.compute_check()->take().lines, IsEmpty()) << "told once";
    if (communicator.rank() == 0) found = mine;
    state.model().check_blocks(nullptr);
  });
  return found;
}

TEST(ComputeCheck, NamesTheRankWhosePassHasTwoResults) {
  const auto found = found_of(3, 1, WrongCore::Passes::first, 1);
  ASSERT_THAT(found.lines, SizeIs(1));
  EXPECT_THAT(found.lines[0],
              AllOf(HasSubstr("step 1: block "),
                    HasSubstr(fmt::format(
                        " computed again from the same input has other bits of q, k and v than "
                        "before: rank 1 (host {}) computed or kept it wrongly "
                        "(run.check_compute_every)",
                        host_name()))));
  EXPECT_EQ(found.over, std::nullopt);
  EXPECT_THAT(found_of(1, 0, WrongCore::Passes::first, 1).lines, SizeIs(1)) << "without a peer";
}

TEST(ComputeCheck, NamesTheRankThatIsWrongEachTimeByItsPeers) {
  const auto found = found_of(3, 2, WrongCore::Passes::all, 1);
  ASSERT_THAT(found.lines, SizeIs(1));
  EXPECT_THAT(found.lines[0],
              AllOf(HasSubstr(" computed again by a peer from the same input has other bits of q"),
                    HasSubstr(fmt::format("before: rank 2 (host {}) computed", host_name()))));
  const auto of_two = found_of(2, 1, WrongCore::Passes::all, 1);
  EXPECT_THAT(of_two.lines,
              ElementsAre(HasSubstr(fmt::format("before: one of rank 0 (host {0}), rank 1 (host "
                                                "{0}) computed or kept them wrongly",
                                                host_name()))));
}

TEST(ComputeCheck, NamesTheRankOfATensorGroup) {
  EXPECT_THAT(found_of(4, 3, WrongCore::Passes::first, 1, {"mesh.tensor=2"}).lines,
              ElementsAre(HasSubstr(": rank 3 (host ")));
}

TEST(ComputeCheck, TheSecondFindingOfAHostEndsTheRun) {
  const auto found = found_of(3, 1, WrongCore::Passes::first, 2);
  EXPECT_THAT(found.lines, SizeIs(2));
  EXPECT_EQ(found.over, fmt::format("host {} computed wrongly twice, in steps 1 and 2: take it out "
                                    "(run.check_compute_every), and start again from a checkpoint "
                                    "before step 1",
                                    host_name()));
}

/// Rank 1 receives another input than rank 0 has sent: so do peers disagree.
class WrongInput final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                  const Tag& tag) override {
    ForwardingBackend::all_to_all(send, receive, stream, tag);
    if (rank() != 1 || tag.purpose != "input of a checked block") return;
    stream.submit_host("flip", [view = receive.of(0)] {
      static_cast<std::uint8_t*>(view.data())[3] ^= std::uint8_t{8};
    });
  }
};

TEST(ComputeCheck, TheTrainerWarnsOnceAndEndsAtTheSecondFinding) {
  const CutRun run;
  const Started wrong{
      .world = 2,
      .overrides = {"run.device=cpu", "run.check_compute_every=2"},
      .wrap = [](const Communicator& world) { return std::make_shared<WrongInput>(world); }};
  ::testing::internal::CaptureStderr();
  const std::string refusal = run.refusal(wrong);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              MatchesRegex("zero_train: warning: step 2: block [^\n]*\n"
                           "zero_train: warning: step 4: block [^\n]*\n"))
      << "by one rank";
  EXPECT_THAT(refusal, HasSubstr(" computed wrongly twice, in steps 2 and 4: take "));
  std::vector<std::int64_t> told;
  for (const Json& line : run.tiny().log()) {
    if (line.contains("computed_wrongly")) told.push_back(line["after_step"]);
  }
  EXPECT_THAT(told, ElementsAre(2, 4));
}

TEST(CheckedRun, HasTheSameResultsOverCollectivesThatAreChecked) {
  const auto results = [](int world, const Overrides& overrides) {
    const TinyRun run;
    local::run(world, [&](Communicator& communicator) {
      const TrainConfig config = make_train_config(
          Configuration::read(run.config(),
                              plus(overrides, {"run.device=cpu", "train_batch_size=24"})),
          world);
      RunDevice device(config, communicator, nullptr);
      EXPECT_EQ(device.world().implementation() == communicator.implementation(),
                !config.run.check_collectives);
      train_rank(config, device.world(), device.device());
    });
    Json all;
    for (const Json& line : run.log()) {
      for (const char* key : {"loss", "grad_norm", "state_hash", "plan_exact"}) {
        if (line.contains(key)) all.push_back(line[key]);
      }
    }
    return all;
  };
  const std::vector<std::pair<int, Overrides>> runs{
      {1, {}},
      {2, {"bf16.enabled=true"}},
      {3, {"zero_optimization.stage=0"}},
      {4, {"mesh.tensor=2", "fp16.enabled=true", "fp16.initial_scale_power=8"}},
      {4, {"mesh.replicate=2", "zero_optimization.stage=2", "run.threads=2"}}};
  for (const auto& [world, overrides] : runs) {
    SCOPED_TRACE(fmt::format("{} ranks, {}", world, overrides.empty() ? "" : overrides[0]));
    EXPECT_EQ(results(world, plus(overrides, {"run.check_collectives=true"})),
              results(world, overrides));
  }
}

}  // namespace
}  // namespace zero::testing
