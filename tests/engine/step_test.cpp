// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "tests/engine/elements.h"
#include "tests/engine/host_device.h"
#include "tests/engine/plain.h"
#include "tests/errors.h"

namespace zero {
namespace {

/// Three units of two parameters; trained by hand with constant gradients.
struct Hand {
  Hand(Communicator& communicator, Device& device, const EngineOptions& options)
      : engine(communicator, device, options) {
    for (const std::string name : {"a", "b", "c"})
      units.push_back(
          engine.add_unit(name, {{"weight", {100}, init::ones()}, {"bias", {100}, init::zeros()}}));
    engine.seal();
  }

  /// One step; `value` says the gradient of each (unit, parameter).
  StepReport step(const std::function<float(int, int)>& value, const StepOptions& options = {}) {
    for (const UnitId unit : units) static_cast<void>(engine.forward(unit));
    for (int unit = 2; unit >= 0; --unit) {
      const GradientLease lease = engine.backward(units[static_cast<std::size_t>(unit)]);
      for (int parameter = 0; parameter < 2; ++parameter) {
        const View view = lease.gradient(parameter);
        for (std::int64_t i = 0; i < view.count(); ++i) toy::put(view, i, value(unit, parameter));
      }
    }
    return engine.step(options);
  }

  Engine engine;
  std::vector<UnitId> units;
};

void with_hand(int world, const EngineOptions& options,
               const std::function<void(Hand&, Communicator&)>& body) {
  local::run(world, [&](Communicator& communicator) {
    const std::unique_ptr<Device> device = cpu::open();
    Hand hand(communicator, *device, options);
    body(hand, communicator);
  });
}

float one(int /*unit*/, int /*parameter*/) { return 1.0F; }

TEST(Step, NamesTheFirstNonfiniteGradientOfBackwardAndSkipsTheUpdate) {
  for (const DType compute : {DType::fp32, DType::bf16, DType::fp16}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
        with_hand(3, plain::options(stage, compute), [&](Hand& hand, Communicator& communicator) {
          hand.step(one, {.learning_rate = 0.1});
          const std::uint64_t before = hand.engine.states().hash();
          const StepReport report = hand.step(
              [&](int unit, int /*parameter*/) {
                const bool strikes = communicator.rank() == 2 && unit >= 1;
                return strikes ? bad : 1.0F;
              },
              {.learning_rate = 0.1});
          EXPECT_EQ(report.nonfinite, "c.bias");
          EXPECT_EQ(report.nonfinite_rank, 1);  // the owner: weight and bias have a shard each
          EXPECT_EQ(report.step, 2);
          EXPECT_FALSE(std::isfinite(report.gradient_norm));
          EXPECT_EQ(hand.engine.states().steps_done(), 1);
          EXPECT_EQ(hand.engine.states().hash(), before);
          const StepReport next = hand.step(one, {.learning_rate = 0.1});
          EXPECT_FALSE(next.nonfinite.has_value());
          EXPECT_EQ(next.nonfinite_rank, -1);
          EXPECT_NE(hand.engine.states().hash(), before);
        });
      }
    }
  }
}

TEST(Step, SkippedLeavesNoTraceInLaterSteps) {
  for (int stage = 0; stage <= 3; ++stage) {
    std::set<std::uint64_t> hashes;
    for (const bool interrupted : {false, true}) {
      with_hand(2, plain::options(stage, DType::bf16), [&](Hand& hand, Communicator& communicator) {
        hand.step(one, {.learning_rate = 0.1});
        if (interrupted) hand.step([](int, int) { return std::nanf(""); }, {.learning_rate = 0.1});
        hand.step(one, {.learning_rate = 0.1});
        const std::uint64_t hash = hand.engine.states().hash();
        if (communicator.rank() == 0) hashes.insert(hash);
      });
    }
    EXPECT_EQ(hashes.size(), 1U);
  }
}

TEST(Step, NamesTheRankWhoseLossIsNotFinite) {
  for (int stage = 0; stage <= 3; stage += 3) {
    with_hand(3, plain::options(stage), [&](Hand& hand, Communicator& communicator) {
      const std::uint64_t before = hand.engine.states().hash();
      const std::vector<double> losses = {communicator.rank() == 2 ? std::nan("") : 1.0};
      const StepReport report = hand.step(one, {.learning_rate = 0.1, .losses = losses});
      EXPECT_EQ(report.nonfinite, "loss");
      EXPECT_EQ(report.nonfinite_rank, 2);
      EXPECT_TRUE(std::isnan(report.loss));
      EXPECT_EQ(hand.engine.states().hash(), before);
    });
  }
}

TEST(Step, ReportsTheSameLossNormAndClippingOnEveryStage) {
  for (int stage = 0; stage <= 3; ++stage) {
    EngineOptions options = plain::options(stage);
    options.gradient_clipping = 10;
    with_hand(2, options, [&](Hand& hand, Communicator& communicator) {
      const std::vector<double> losses = {communicator.rank() == 0 ? 1e-20 : 1.0};
      const StepReport report = hand.step(one, {.learning_rate = 0.1, .losses = losses});
      EXPECT_EQ(report.loss, 1.0);
      EXPECT_DOUBLE_EQ(report.gradient_norm, std::sqrt(600.0 * 4.0));  // two ranks: 2 everywhere
      EXPECT_TRUE(report.clipped);
      const StepReport scaled =
          hand.step(one, {.learning_rate = 0.1, .loss_scale = 8.0, .losses = losses});
      EXPECT_DOUBLE_EQ(scaled.gradient_norm, std::sqrt(600.0 * 4.0) / 8.0);
      EXPECT_FALSE(scaled.clipped);
    });
  }
}

TEST(Step, OfPlainDescentIsTheTextbook) {
  for (int stage = 0; stage <= 3; ++stage) {
    EngineOptions options = plain::options(stage);
    options.optimizer = {.kind = OptimizerConfig::Kind::sgd, .weight_decay = 0};
    options.groups = {{"b.*", 0.5, {}}, {"c.bias", 0.0, {}}};
    with_hand(3, options, [](Hand& hand, Communicator&) {
      hand.step(one, {.learning_rate = 0.25});
      const auto value = [&](std::string_view name) {
        return plain::read(hand.engine, name, StateKind::parameter);
      };
      EXPECT_THAT(value("a.weight"), ::testing::Each(1.0F - 0.25F * 3.0F));
      EXPECT_THAT(value("a.bias"), ::testing::Each(-0.25F * 3.0F));
      EXPECT_THAT(value("b.weight"), ::testing::Each(1.0F - 0.125F * 3.0F));
      EXPECT_THAT(value("c.weight"), ::testing::Each(1.0F - 0.25F * 3.0F));
      EXPECT_THAT(value("c.bias"), ::testing::Each(0.0F));
    });
  }
}

TEST(Step, OfEveryOptimizerGivesTheSameBitsOnEveryStage) {
  std::set<std::uint64_t> kinds;
  const std::vector<OptimizerConfig> configs = {
      {.kind = OptimizerConfig::Kind::adamw, .weight_decay = 0.1},
      {.kind = OptimizerConfig::Kind::adam, .weight_decay = 0.1},
      {.kind = OptimizerConfig::Kind::sgd, .weight_decay = 0.1},
      {.kind = OptimizerConfig::Kind::sgd, .weight_decay = 0.1, .momentum = 0.9}};
  for (const OptimizerConfig& config : configs) {
    std::set<std::uint64_t> hashes;
    for (int stage = 0; stage <= 3; ++stage) {
      plain::Setup setup{plain::options(stage, DType::bf16), plain::odd_units(), 3};
      setup.engine.optimizer = config;
      setup.engine.gradient_clipping = 0.5;
      hashes.insert(plain::train(3, setup, 3));
    }
    EXPECT_EQ(hashes.size(), 1U);
    kinds.insert(*hashes.begin());
  }
  EXPECT_EQ(kinds.size(), configs.size());
}

TEST(Step, OfTheBoundaryPolicyGivesTheSameBitsOnBothItsStages) {
  for (const DType gradient : {DType::fp32, DType::bf16}) {
    std::set<std::uint64_t> hashes;
    for (const int stage : {0, 1}) {
      plain::Setup setup{plain::options(stage, DType::bf16), plain::odd_units(), 3};
      setup.engine.reduction = ReductionPolicy::boundary;
      setup.engine.gradient = gradient;
      hashes.insert(plain::train(3, setup, 2));
    }
    EXPECT_EQ(hashes.size(), 1U);
  }
}

/// Runs work at once, but keeps one until the host waits for it; after the first event behind that
/// work the stream fails.
class LateStream final : public Stream {
 public:
  Event record() override {
    if (!work_) return {};
    if (events_++ > 0) fail("record: the device is lost");
    return Event(std::make_shared<Point>(work_));
  }
  void synchronize() override {}
  double waited_seconds() const override { return 0; }
  bool has_run() const { return work_ != nullptr && !*work_; }

  std::string late;  ///< name of the work to keep

 private:
  void do_submit(std::string_view what, Work work) override {
    if (what != late) return work();
    work_ = std::make_shared<Work>(std::move(work));
  }
  void do_wait(const Event& event) override { event.synchronize(); }

  struct Point final : Event::State {
    explicit Point(std::shared_ptr<Work> of) : work(std::move(of)) {}
    bool complete() override { return !*work; }
    void synchronize() override {
      if (const Work once = std::exchange(*work, nullptr)) once();
    }
    std::shared_ptr<Work> work;
  };
  std::shared_ptr<Work> work_;
  int events_ = 0;
};

TEST(Step, ThatThrowsHasReadTheLossesWhichItsCallerMayThenFree) {
  local::run(1, [](Communicator& alone) {
    testing::HostDevice<LateStream> device;
    Hand hand(alone, device, plain::options(1));
    device.communication().late = "norm and loss";
    const std::vector<double> losses{1.5};
    EXPECT_THAT(error_of([&] { hand.step(one, {.learning_rate = 0.1, .losses = losses}); }),
                ::testing::HasSubstr("the device is lost"));
    EXPECT_TRUE(device.communication().has_run());
  });
}

}  // namespace
}  // namespace zero
