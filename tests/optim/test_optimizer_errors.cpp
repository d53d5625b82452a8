// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "tests/optim/case.h"

namespace zero::testing {
namespace {

using Kind = OptimizerConfig::Kind;

std::string config_error(const OptimizerConfig& config) {
  const auto device = cpu::open();
  return error_of([&] { make_optimizer(config, *device); });
}

TEST(MakeOptimizer, NamesEveryConstantThatIsOutOfRange) {
  EXPECT_EQ(config_error({.beta1 = 1, .beta2 = -0.1, .epsilon = -1, .weight_decay = -2}),
            "AdamW: beta1 is 1 (expected 0 or more, below 1); beta2 is -0.1 (expected 0 or more, "
            "below 1); epsilon is -1 (expected 0 or more, and finite in fp32); weight_decay is -2 "
            "(expected 0 or more, and finite in fp32)");
  EXPECT_EQ(config_error({.kind = Kind::adam, .beta2 = std::numeric_limits<double>::quiet_NaN()}),
            "Adam: beta2 is nan (expected 0 or more, below 1)");
  EXPECT_EQ(config_error({.kind = Kind::sgd, .momentum = 1}),
            "SGD: momentum is 1 (expected 0 or more, below 1)");
  EXPECT_EQ(config_error({.epsilon = 0, .moments = MomentFormat::eight_bit}),
            "AdamW: epsilon is 0 (expected above 0 with 8-bit moments)");
  EXPECT_NO_THROW(validate({.epsilon = 0, .moments = MomentFormat::bf16}));
}

TEST(MakeOptimizer, ConstantsOfOtherKindsDoNotMatter) {
  const auto device = cpu::open();
  EXPECT_NO_THROW(make_optimizer({.kind = Kind::sgd, .beta1 = 7}, *device));
  EXPECT_NO_THROW(make_optimizer({.kind = Kind::adam, .momentum = 7}, *device));
}

// The error of an update whose arguments `change` has spoilt.
template <typename Change>
std::string update_error(const OptimizerConfig& config, Change change) {
  const auto device = cpu::open();
  const auto optimizer = make_optimizer(config, *device);
  State state = some_state(10, {.gradient = DType::fp32, .compute = DType::bf16}, 1);
  const State before = state;
  UpdateArguments arguments = state.arguments(0, 10);
  change(arguments);
  const std::string message = error_of([&] { optimizer->update(device->compute(), arguments); });
  EXPECT_EQ(state, before);
  return message;
}

TEST(UpdateArguments, MismatchedCountsAreNamed) {
  EXPECT_EQ(update_error({}, [](auto& a) { a.gradient = a.gradient.slice(0, 9); }),
            "AdamW: the gradient has 9 elements, the master values have 10");
  EXPECT_EQ(update_error({}, [](auto& a) { a.moments[1] = View(); }),
            "AdamW: moment 1 has 0 elements, the master values have 10");
  EXPECT_EQ(update_error({.kind = Kind::sgd, .momentum = 0.5},
                         [](auto& a) { a.moments[0] = a.moments[0].slice(1, 2); }),
            "SGD: moment 0 has 2 elements, the master values have 10");
  EXPECT_EQ(update_error({.kind = Kind::adam}, [](auto& a) { a.compute = a.compute.slice(0, 4); }),
            "Adam: the compute copy has 4 elements, the master values have 10");
}

View retyped(const View& view, DType dtype) {
  return {view.data(), view.count(), dtype, view.device()};
}

TEST(UpdateArguments, WrongDTypesAreNamed) {
  EXPECT_EQ(update_error({}, [](auto& a) { a.master = retyped(a.master, DType::bf16); }),
            "AdamW: the master is bf16; expected fp32");
  EXPECT_EQ(update_error({}, [](auto& a) { a.moments[0] = retyped(a.moments[0], DType::fp16); }),
            "AdamW: moment 0 is fp16; expected fp32");
  EXPECT_EQ(update_error({}, [](auto& a) { a.gradient = retyped(a.gradient, DType::i32); }),
            "AdamW: the gradient is i32; expected fp32, bf16 or fp16");
  EXPECT_EQ(update_error({}, [](auto& a) { a.compute = retyped(a.compute, DType::u16); }),
            "AdamW: the compute copy is u16; expected bf16 or fp16, or none");
}

TEST(UpdateArguments, NumbersOutOfRangeAreNamed) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(update_error({}, [](auto& a) { a.step = 0; }),
            "AdamW: step 0; steps are counted from 1");
  EXPECT_EQ(update_error({}, [&](auto& a) { a.learning_rate = nan; }),
            "AdamW: the learning rate is nan; expected a finite value of 0 or more");
  EXPECT_EQ(update_error({}, [](auto& a) { a.weight_decay = -1; }),
            "AdamW: the weight decay is -1; expected a finite value of 0 or more");
  EXPECT_EQ(update_error({}, [&](auto& a) { a.gradient_scale = static_cast<float>(nan); }),
            "AdamW: the gradient scale is nan; skip the step when the gradient norm is not finite");
}

}  // namespace
}  // namespace zero::testing
