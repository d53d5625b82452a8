// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// One update of every optimizer against a plain loop, in fp32 (the same bits) and in fp64 (close).
#include <algorithm>
#include <limits>

#include "device/cpu/primitives.h"
#include "tests/optim/case.h"

namespace zero::testing {
namespace {

using Kind = OptimizerConfig::Kind;

template <typename Real>
struct Scalar {
  Real p, m, v;
};

// The update of one element, from the papers and PyTorch's documentation.
template <typename Real>
Scalar<Real> update_element(const OptimizerConfig& config, const UpdateArguments& a, Scalar<Real> x,
                            Real gradient) {
  Real g = gradient * static_cast<Real>(a.gradient_scale);
  if (config.kind == Kind::adamw) {
    x.p = x.p * static_cast<Real>(1.0 - a.learning_rate * a.weight_decay);
  } else {
    g = g + static_cast<Real>(a.weight_decay) * x.p;
  }
  if (config.kind == Kind::sgd) {
    if (config.momentum > 0) {
      x.m = static_cast<Real>(config.momentum) * x.m + g;
      g = x.m;
    }
    x.p = x.p - static_cast<Real>(a.learning_rate) * g;
    return x;
  }
  const double corrected1 = 1.0 - std::pow(config.beta1, static_cast<double>(a.step));
  const double corrected2 = 1.0 - std::pow(config.beta2, static_cast<double>(a.step));
  x.m = x.m + static_cast<Real>(1.0 - config.beta1) * (g - x.m);
  x.v = x.v * static_cast<Real>(config.beta2) + static_cast<Real>(1.0 - config.beta2) * g * g;
  const Real root = std::sqrt(x.v) * static_cast<Real>(1.0 / std::sqrt(corrected2));
  const Real denominator = root + static_cast<Real>(config.epsilon);
  x.p = x.p - static_cast<Real>(a.learning_rate / corrected1) * x.m / denominator;
  return x;
}

struct Case {
  const char* name;
  OptimizerConfig config;
  double weight_decay;
};

std::vector<Case> cases() {
  return {{"AdamW", {.kind = Kind::adamw, .beta2 = 0.95}, 0},
          {"AdamWDecay", {.kind = Kind::adamw}, 0.1},
          {"Adam", {.kind = Kind::adam}, 0},
          {"AdamDecay", {.kind = Kind::adam, .epsilon = 1e-6}, 0.1},
          {"Sgd", {.kind = Kind::sgd}, 0},
          {"SgdDecay", {.kind = Kind::sgd}, 0.1},
          {"Momentum", {.kind = Kind::sgd, .momentum = 0.9}, 0},
          {"MomentumDecay", {.kind = Kind::sgd, .momentum = 0.9}, 0.1}};
}

class Update : public ::testing::TestWithParam<Case> {
 protected:
  static UpdateArguments arguments_of(State& state, std::int64_t count) {
    UpdateArguments a = state.arguments(0, count);
    a.learning_rate = 3e-3;
    a.weight_decay = GetParam().weight_decay;
    a.gradient_scale = 0.37F;
    a.step = 3;
    return a;
  }
};

// The fp32 loop, over a copy.
State updated_by_loop(State state, const OptimizerConfig& config, const UpdateArguments& a,
                      std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Scalar<float> x = update_element<float>(
        config, a, {state.master.get(i), state.moment0.get(i), state.moment1.get(i)},
        state.gradient.get(i));
    state.master.set(i, x.p);
    state.moment0.set(i, x.m);
    state.moment1.set(i, x.v);
    if (!state.compute.view().empty()) state.compute.set(i, x.p);
  }
  return state;
}

TEST_P(Update, GivesTheBitsOfAPlainLoopForEveryDTypeAndLength) {
  const auto device = cpu::open();
  const auto optimizer = make_optimizer(GetParam().config, *device);
  for (const DType gradient : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const DType compute : {DType::fp32, DType::bf16, DType::fp16}) {
      for (const std::int64_t count : {0, 1, 2, 3, 15, 16, 17, 33, 64, 1001}) {
        State state = some_state(count, {.gradient = gradient, .compute = compute}, 5);
        const UpdateArguments a = arguments_of(state, count);
        const State expected = updated_by_loop(state, GetParam().config, a, count);
        optimizer->update(device->compute(), a);
        EXPECT_EQ(state, expected)
            << name_of(gradient) << " to " << name_of(compute) << ", " << count << " elements";
      }
    }
  }
}

TEST_P(Update, IsWithinFp32RoundingOfAnFp64Loop) {
  const auto device = cpu::open();
  const auto optimizer = make_optimizer(GetParam().config, *device);
  constexpr std::int64_t kCount = 5000;
  State state = some_state(kCount, {}, 6);
  const State before = state;
  const UpdateArguments a = arguments_of(state, kCount);
  optimizer->update(device->compute(), a);
  for (std::int64_t i = 0; i < kCount; ++i) {
    const Scalar<double> x = update_element<double>(
        GetParam().config, a, {before.master.get(i), before.moment0.get(i), before.moment1.get(i)},
        before.gradient.get(i));
    ASSERT_NEAR(state.master.get(i), x.p, 4e-7 * std::max(1.0, std::abs(x.p)));
    ASSERT_NEAR(state.moment0.get(i), x.m, 4e-7 * std::max(1.0, std::abs(x.m)));
    ASSERT_NEAR(state.moment1.get(i), x.v, 4e-7 * std::max(1.0, x.v));
  }
}

TEST_P(Update, NeverChangesTheGradientNorUnusedMoments) {
  const auto device = cpu::open();
  const auto optimizer = make_optimizer(GetParam().config, *device);
  State state = some_state(100, {}, 7);
  const State before = state;
  optimizer->update(device->compute(), arguments_of(state, 100));
  EXPECT_EQ(state.gradient, before.gradient);
  EXPECT_NE(state.master, before.master);
  EXPECT_EQ(state.moment0 == before.moment0, optimizer->moments() < 1);
  EXPECT_EQ(state.moment1 == before.moment1, optimizer->moments() < 2);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Update, ::testing::ValuesIn(cases()),
                         [](const auto& of) { return of.param.name; });

TEST(LowPrecision, CopiesAndGradientsConvertLikeBaseHalfForSpecialValues) {
  const auto device = cpu::open();
  const auto keep = make_optimizer({.kind = Kind::adamw}, *device);  // a step of nothing
  const auto subtract = make_optimizer({.kind = Kind::sgd}, *device);
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {
      0.0F,         -0.0F,       1.0F,
      -1.00390625F, 1.01171875F, 65504.0F,
      65519.9F,     65520.0F,    -70000.0F,
      0x1p-14F,     0x1p-15F,    0x1.8p-24F,
      0x1p-25F,     -0x1p-26F,   1e-40F,
      3e38F,        3.3961e38F,  0x1.ffcp-15F,
      infinity,     -infinity,   std::numeric_limits<float>::quiet_NaN()};
  const auto count = static_cast<std::int64_t>(values.size());
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    State state = some_state(count, {.gradient = dtype, .compute = dtype}, 8);
    Elements expected(dtype, count);
    for (std::int64_t i = 0; i < count; ++i) {
      state.master.set(i, values[static_cast<std::size_t>(i)]);
      state.gradient.set(i, 0);
      state.moment0.set(i, 0);
      expected.set(i, values[static_cast<std::size_t>(i)]);
    }
    keep->update(device->compute(), state.arguments(0, count));
    EXPECT_EQ(state.compute, expected) << name_of(dtype);

    for (std::int64_t i = 0; i < count; ++i) {
      state.master.set(i, 0);
      state.gradient.set(i, values[static_cast<std::size_t>(i)]);
    }
    UpdateArguments a = state.arguments(0, count);
    a.learning_rate = 1;
    subtract->update(device->compute(), a);
    for (std::int64_t i = 0; i < count; ++i) {
      const float gradient = state.gradient.get(i);
      if (std::isnan(gradient)) {
        EXPECT_TRUE(std::isnan(state.master.get(i)));
      } else {
        EXPECT_EQ(state.master.get(i), -gradient) << name_of(dtype) << " element " << i;
      }
    }
  }
}

TEST(Moments, AreTwoForAdamAndOneForMomentum) {
  const auto device = cpu::open();
  EXPECT_EQ(make_optimizer({}, *device)->moments(), 2);
  EXPECT_EQ(make_optimizer({.kind = Kind::sgd, .momentum = 0.9}, *device)->moments(), 1);
  EXPECT_EQ(make_optimizer({.kind = Kind::sgd}, *device)->moments(), 0);
}

TEST(SimdTarget, HasAName) { EXPECT_FALSE(cpu::simd_target().empty()); }

}  // namespace
}  // namespace zero::testing
