// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <hwy/targets.h>

#include "ops/cpu/products.h"
#include "tests/only_target.h"
#include "tests/ops/ops_harness.h"

namespace zero::testing {
namespace {

// y, dx and dW of a linear layer whose sizes are whole tiles and rests.
std::vector<Values> products(Harness& h, const LinearShape& shape) {
  h.ops->prepare(shape, Ops::LinearUse::training);
  h.ops->allocate_scratch();
  const DType t = shape.dtype;
  const View x = h.tensor(random_values(shape.rows * shape.in, 1, t), t);
  const View weight = h.tensor(random_values(shape.in * shape.out, 2, t), t);
  const View bias = h.tensor(random_values(shape.out, 3, t), t);
  const View dy = h.tensor(random_values(shape.rows * shape.out, 4, t), t);
  const View y = h.empty(shape.rows * shape.out, t);
  const View dx = h.empty(shape.rows * shape.in, t);
  const View dweight = h.empty(shape.in * shape.out, t);
  h.ops->linear_forward(shape, x, weight, bias, y);
  h.ops->linear_backward_input(shape, dy, weight, dx);
  h.ops->linear_backward_weight(shape, x, dy, dweight, Write::overwrite);
  return {h.read(y), h.read(dx), h.read(dweight)};
}

// A program of its own: the limit holds for a whole process, before its first product.
class OldProcessor : public ::testing::TestWithParam<WeightLayout> {
 protected:
  static void SetUpTestSuite() { cpu::limit_bf16_instructions(cpu::Bf16Instructions::none); }
};

TEST_P(OldProcessor, MultipliesBf16WithoutInstructionsForIt) {
  EXPECT_EQ(cpu::bf16_instructions(), cpu::Bf16Instructions::none);
  EXPECT_EQ(cpu::kernels_of(DType::bf16), cpu::KernelKind::floats);
  EXPECT_EQ(cpu::flop_in_registers(DType::bf16, 1), 0);
  constexpr DType t = DType::bf16;
  Harness h;
  const Values y = products(h, {70, 300, 97, GetParam(), t, t})[0];
  Values weight = random_values(300 * 97, 2, t);
  if (GetParam() == WeightLayout::out_in) weight = reference::transposed(weight, 97, 300);
  Values expected = reference::product(random_values(70 * 300, 1, t), weight, 70, 300, 97);
  const Values bias = random_values(97, 3, t);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += bias[i % bias.size()];
  expect_near(y, expected, rounding(t), "y");
}

TEST_P(OldProcessor, MultipliesAlikeWithAnyVectorsAndTheSameBitsWhereTheyFuse) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    std::vector<Values> first;
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      SCOPED_TRACE(hwy::TargetName(target));
      const OnlyTarget only(target);
      Harness h;
      const std::vector<Values> found = products(h, {70, 300, 97, GetParam(), dtype, dtype});
      if (first.empty()) first = found;
      const bool fuses = target == HWY_AVX3 || target == HWY_AVX2 || target == HWY_NEON;
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_TRUE(!fuses || found[i] == first[i]) << "product " << i;
        expect_near(found[i], first[i], rounding(dtype), "product " + std::to_string(i));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, OldProcessor,
                         ::testing::Values(WeightLayout::in_out, WeightLayout::out_in),
                         [](const auto& tested) {
                           return tested.param == WeightLayout::in_out ? "InOut" : "OutIn";
                         });

}  // namespace
}  // namespace zero::testing
