// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "engine/engine_options.h"
#include "engine/sharding.h"
#include "tests/engine/plain.h"
#include "tests/errors.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// What a fresh engine in a world of one says to `body`.
std::string said(const EngineOptions& options, const std::function<void(Engine&)>& body) {
  std::string message;
  local::run(1, [&](Communicator& communicator) {
    const std::unique_ptr<Device> device = cpu::open();
    message = error_of([&] {
      Engine engine(communicator, *device, options);
      body(engine);
    });
  });
  return message;
}

std::string refusal(const std::function<void(EngineOptions&)>& change) {
  EngineOptions options;
  change(options);
  return said(options, [](Engine&) {});
}

TEST(EngineOptions, OutOfRangeAreRefusedWithWhatIsExpected) {
  EXPECT_EQ(refusal([](EngineOptions&) {}), "no error");
  for (const int stage : {-1, 4}) {
    EXPECT_THAT(refusal([=](EngineOptions& o) { o.stage = stage; }),
                HasSubstr(fmt::format("stage is {}, expected 0, 1, 2 or 3", stage)));
  }
  EXPECT_THAT(refusal([](EngineOptions& o) { o.compute = DType::fp64; }),
              HasSubstr("compute dtype is fp64, expected fp32, bf16 or fp16"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.gradient = DType::bf16; }),
              HasSubstr("gradient dtype is bf16, expected fp32 or the compute dtype fp32"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.optimizer.beta1 = 1.5; }), HasSubstr("beta1"));
}

TEST(EngineOptions, NumbersThatAreNotFiniteOrNegativeAreRefusedBeforeTheFirstStep) {
  struct Number {
    const char* name;
    std::function<void(EngineOptions&, double)> set;
    OptimizerConfig::Kind kind = OptimizerConfig::Kind::adamw;
  };
  const auto in_group = [](EngineOptions& o, double rate, double decay) {
    o.groups = {{"*", rate, decay}};
  };
  const std::vector<Number> numbers = {
      {"gradient_clipping", [](EngineOptions& o, double v) { o.gradient_clipping = v; }},
      {"beta1", [](EngineOptions& o, double v) { o.optimizer.beta1 = v; }},
      {"beta2", [](EngineOptions& o, double v) { o.optimizer.beta2 = v; }},
      {"epsilon", [](EngineOptions& o, double v) { o.optimizer.epsilon = v; }},
      {"weight_decay", [](EngineOptions& o, double v) { o.optimizer.weight_decay = v; }},
      {"momentum", [](EngineOptions& o, double v) { o.optimizer.momentum = v; },
       OptimizerConfig::Kind::sgd},
      {"learning_rate_scale", [&](EngineOptions& o, double v) { in_group(o, v, 0.0); }},
      {"weight_decay", [&](EngineOptions& o, double v) { in_group(o, 1.0, v); }},
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const Number& number : numbers) {
    for (const double value : {kInfinity, -kInfinity, std::nan(""), -0.5}) {
      EXPECT_THAT(refusal([&](EngineOptions& o) {
                    o.optimizer.kind = number.kind;
                    number.set(o, value);
                  }),
                  AllOf(HasSubstr(fmt::format("{} ", number.name)),
                        HasSubstr(fmt::format("{}", value)), HasSubstr("expected ")));
    }
    EXPECT_EQ(refusal([&](EngineOptions& o) {
                o.optimizer.kind = number.kind;
                number.set(o, 0.0);
              }),
              "no error");
  }
  EXPECT_EQ(refusal([](EngineOptions& o) { o.gradient_clipping = kInfinity; }),
            "engine: gradient_clipping is inf, expected 0 (none) or a finite norm above it");
  // Finite as doubles, but the update has them in fp32.
  EXPECT_THAT(refusal([](EngineOptions& o) { o.optimizer.epsilon = 1e300; }),
              HasSubstr("epsilon is 1e+300 (expected 0 or more, and finite in fp32)"));
}

TEST(EngineOptions, LimitsOutOfRangeAreRefusedWithTheirValues) {
  EXPECT_THAT(refusal([](EngineOptions& o) { o.limits.prefetch_elements = -1; }),
              HasSubstr("must not be negative (prefetch -1,"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.limits.live_elements = -2; }),
              HasSubstr("live -2,"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.limits.persistence_threshold = -3; }),
              HasSubstr("persistence -3,"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.limits.reuse_distance = -4; }),
              HasSubstr("reuse -4)"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.limits.reduce_bucket_elements = 0; }),
              HasSubstr("reduce_bucket_elements is 0, expected at least 1"));
}

TEST(EngineOptions, ParameterGroupsOutOfRangeAreRefusedByPattern) {
  for (const ParameterGroup& group :
       {ParameterGroup{"*.bias", -1.0}, ParameterGroup{"*.bias", std::nan("")},
        ParameterGroup{"*.bias", 1.0, -0.5}}) {
    EXPECT_THAT(refusal([=](EngineOptions& o) { o.groups = {group}; }),
                AllOf(HasSubstr("parameter group \"*.bias\""),
                      HasSubstr("expected finite values of 0 or more")));
  }
}

TEST(EngineOptions, BoundaryReductionIsForStagesThatKeepFullGradients) {
  for (int stage = 0; stage <= 3; ++stage) {
    const std::string message = refusal([=](EngineOptions& o) {
      o.stage = stage;
      o.reduction = ReductionPolicy::boundary;
    });
    if (stage <= 1) {
      EXPECT_EQ(message, "no error");
    } else {
      EXPECT_THAT(message, AllOf(HasSubstr(fmt::format("stage {} exists to avoid", stage)),
                                 HasSubstr("use stage 0 or 1")));
    }
  }
}

TEST(EngineUnits, NeedNamesThatAreUnique) {
  const auto adding = [](const std::function<void(Engine&)>& body) { return said({}, body); };
  EXPECT_THAT(adding([](Engine& e) { e.add_unit("", {}); }), HasSubstr("a unit needs a name"));
  EXPECT_THAT(adding([](Engine& e) {
                e.add_unit("a", {});
                e.add_unit("a", {});
              }),
              HasSubstr("add_unit(a): a unit of that name exists"));
  EXPECT_THAT(adding([](Engine& e) {
                e.add_unit("a", {{"", {1}}});
              }),
              HasSubstr("add_unit(a): a parameter needs a name"));
  EXPECT_THAT(adding([](Engine& e) {
                e.add_unit("a", {{"w", {1}}, {"w", {2}}});
              }),
              HasSubstr("add_unit(a): parameter \"a.w\" is registered twice"));
  EXPECT_THAT(adding([](Engine& e) {
                e.add_unit("a", {{"b.w", {1}}});
                e.add_unit("a.b", {{"w", {2}}});
              }),
              HasSubstr("add_unit(a.b): parameter \"a.b.w\" is registered twice"));
  EXPECT_THAT(adding([](Engine& e) { e.add_unit("a", {{"w", {2, -1}}}); }), HasSubstr("-1"));
}

TEST(EngineUnits, RefusedLeaveTheEngineAsItWas) {
  EXPECT_EQ(
      said({},
           [](Engine& e) {
             EXPECT_NE(error_of([&] { e.add_unit("a", {{"w", {1}}, {"w", {2}}}); }), "no error");
             EXPECT_EQ(e.add_unit("a", {{"w", {1}}}).index, 0);
             e.seal();
           }),
      "no error");
}

TEST(EngineSeal, RefusesOrdersThatCannotBe) {
  EXPECT_THAT(said({},
                   [](Engine& e) {
                     const UnitId unit = e.add_unit("layer", {{"w", {4}}});
                     e.seal({.order = {{unit, Phase::forward}}});
                   }),
              AllOf(HasSubstr("unit \"layer\" has trainable parameters but no backward use"),
                    HasSubstr("declare one or freeze them")));
  EXPECT_THAT(said({},
                   [](Engine& e) {
                     e.add_unit("layer", {{"w", {4}}});
                     e.seal({.order = {{UnitId{1}, Phase::forward}}});
                   }),
              HasSubstr("the order uses unit 1, but 1 units are registered"));
  EXPECT_THAT(said({},
                   [](Engine& e) {
                     e.add_unit("layer", {{"w", {4}}});
                     e.seal({.accumulation_steps = 0});
                   }),
              HasSubstr("accumulation_steps is 0, expected at least 1"));
}

TEST(EngineStep, RefusesOptionsThatCannotBe) {
  plain::run(1, {plain::options(3), plain::odd_units(), 1},
             [](plain::Trainer& trainer, Communicator&) {
               trainer.forward();
               trainer.backward(0);
               const std::vector<double> losses(2, 1.0);
               EXPECT_THAT(error_of([&] { trainer.engine().step({.losses = losses}); }),
                           HasSubstr("2 losses were given, expected one per micro-batch, 1"));
               for (const double scale : {0.0, -1.0, std::nan(""), HUGE_VAL, 1e-320, 1e300}) {
                 EXPECT_THAT(error_of([&] { trainer.engine().step({.loss_scale = scale}); }),
                             HasSubstr("expected more than 0"));
               }
               EXPECT_EQ(trainer.engine().step({}).step, 1);
             });
}

TEST(EngineStep, RefusesALearningRateThatIsNotFiniteAndLosesNothing) {
  plain::run(1, {plain::options(3), plain::odd_units(), 1},
             [](plain::Trainer& trainer, Communicator&) {
               EXPECT_THAT(error_of([&] { trainer.step(std::nan("")); }),
                           HasSubstr("[rank 0] step: learning_rate is nan, expected a finite"));
               EXPECT_THAT(error_of([&] { trainer.engine().step({.learning_rate = -1.0}); }),
                           HasSubstr("learning_rate is -1, expected a finite"));
               for (const double rate : {HUGE_VAL, 1e300}) {
                 EXPECT_THAT(error_of([&] { trainer.engine().step({.learning_rate = rate}); }),
                             HasSubstr("expected a finite value of 0 or more, at most 3.4e+38"));
               }
               const StepReport report = trainer.engine().step({.learning_rate = 0.1});
               EXPECT_EQ(report.step, 1);
               EXPECT_GT(report.gradient_norm, 0.0);
             });
}

TEST(MakeSharding, RefusesAnUnknownStage) {
  const auto communicator = planning::communicator(0, 1, BackendKind::local);
  const auto device = planning::open();
  EngineOptions options;
  options.stage = 5;
  EXPECT_THAT(error_of([&] {
                make_sharding({*communicator, *device, options, DType::fp32, 2, 1, *communicator});
              }),
              HasSubstr("stage is 5, expected 0, 1, 2 or 3"));
}

}  // namespace
}  // namespace zero
