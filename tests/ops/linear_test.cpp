// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/errors.h"
#include "tests/ops/ops_harness.h"

namespace zero::testing {
namespace {

struct LinearCase {
  std::int64_t rows, in, out;
  WeightLayout layout;
  DType dtype;
  Alignment alignment = Alignment::whole;
};

std::vector<LinearCase> linear_cases() {
  std::vector<LinearCase> cases;
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const WeightLayout layout : {WeightLayout::in_out, WeightLayout::out_in}) {
      cases.push_back({1, 1, 1, layout, dtype});
      cases.push_back({5, 7, 3, layout, dtype});
      cases.push_back({33, 64, 17, layout, dtype});
      cases.push_back({33, 64, 16, layout, dtype, Alignment::element});
      cases.push_back({70, 48, 97, layout, dtype});
      // Longer than what a kernel takes at once, in each direction.
      cases.push_back({33, 801, 40, layout, dtype});
      cases.push_back({545, 64, 31, layout, dtype});
      cases.push_back({64, 32, 1030, layout, dtype});
    }
  }
  return cases;
}

class Linear : public ::testing::TestWithParam<LinearCase> {
 protected:
  Linear() {
    const LinearCase& c = GetParam();
    shape_ = {c.rows, c.in, c.out, c.layout, c.dtype, c.dtype};
    x_ = random_values(c.rows * c.in, 1, c.dtype);
    weight_ = random_values(c.in * c.out, 2, c.dtype);
    bias_ = random_values(c.out, 3, c.dtype);
    dy_ = random_values(c.rows * c.out, 4, c.dtype);
    in_out_ =
        c.layout == WeightLayout::in_out ? weight_ : reference::transposed(weight_, c.out, c.in);
  }
  void prepare() {
    h_.ops->prepare(shape_, Ops::LinearUse::training);
    h_.ops->prepare(MatrixShape{shape_.rows, std::max(shape_.in, shape_.out), shape_.dtype});
    h_.ops->allocate_scratch();
  }
  Values expected_y() const {
    return reference::product(x_, in_out_, shape_.rows, shape_.in, shape_.out);
  }
  Values expected_dx() const {
    const Values wt = reference::transposed(in_out_, shape_.in, shape_.out);
    return reference::product(dy_, wt, shape_.rows, shape_.out, shape_.in);
  }
  // In the weight's layout.
  Values expected_dweight() const {
    const Values xt = reference::transposed(x_, shape_.rows, shape_.in);
    const Values d = reference::product(xt, dy_, shape_.in, shape_.rows, shape_.out);
    return shape_.layout == WeightLayout::in_out ? d
                                                 : reference::transposed(d, shape_.in, shape_.out);
  }

  Harness h_{GetParam().alignment};
  LinearShape shape_;
  Values x_, weight_, bias_, dy_, in_out_;
};

TEST_P(Linear, ForwardIsTheProductPlusBias) {
  h_.ops->prepare(shape_, Ops::LinearUse::forward);
  h_.ops->prepare(shape_, Ops::LinearUse::forward_fp32);
  h_.ops->allocate_scratch();
  const DType t = shape_.dtype;
  const View x = h_.tensor(x_, t);
  const View weight = h_.tensor(weight_, t);
  const View bias = h_.tensor(bias_, t);
  Values expected = expected_y();
  for (const DType out : {t, DType::fp32}) {
    const View y = h_.empty(shape_.rows * shape_.out, out);
    h_.ops->linear_forward(shape_, x, weight, View(), y);
    expect_near(h_.read(y), expected, rounding(out), "y of " + label(out));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += bias_[i % bias_.size()];
  const View y = h_.empty(shape_.rows * shape_.out, t);
  h_.ops->linear_forward(shape_, x, weight, bias, y);
  expect_near(h_.read(y), expected, rounding(t), "y with bias");
}

TEST_P(Linear, BackwardInputMultipliesByTheTransposedWeight) {
  prepare();
  const View dx = h_.empty(shape_.rows * shape_.in, shape_.dtype);
  h_.ops->linear_backward_input(shape_, h_.tensor(dy_, shape_.dtype),
                                h_.tensor(weight_, shape_.dtype), dx);
  expect_near(h_.read(dx), expected_dx(), rounding(shape_.dtype), "dx");
}

TEST_P(Linear, BackwardWeightOverwritesOrAdds) {
  for (const DType gradient : {shape_.dtype, DType::fp32}) {
    shape_.weight_gradient = gradient;
    prepare();
    const View x = h_.tensor(x_, shape_.dtype);
    const View dy = h_.tensor(dy_, shape_.dtype);
    const View dweight = h_.empty(shape_.in * shape_.out, gradient);
    h_.ops->linear_backward_weight(shape_, x, dy, dweight, Write::overwrite);
    Values expected = expected_dweight();
    expect_near(h_.read(dweight), expected, rounding(gradient), "dW of " + label(gradient));
    h_.ops->linear_backward_weight(shape_, x, dy, dweight, Write::add);
    for (double& value : expected) value *= 2;
    expect_near(h_.read(dweight), expected, rounding(gradient), "dW added, " + label(gradient));
  }
}

TEST_P(Linear, GeluForwardKeepsWhatGeluIsTakenOf) {
  prepare();
  const DType t = shape_.dtype;
  const View z = h_.empty(shape_.rows * shape_.out, t);
  const View y = h_.empty(shape_.rows * shape_.out, t);
  h_.ops->linear_gelu_forward(shape_, {.x = h_.tensor(x_, t),
                                       .weight = h_.tensor(weight_, t),
                                       .bias = h_.tensor(bias_, t),
                                       .z = z,
                                       .y = y});
  Values expected = expected_y();
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += bias_[i % bias_.size()];
  expect_near(h_.read(z), expected, rounding(t), "z");
  expect_near(h_.read(y), reference::gelu(expected), rounding(t), "y");
}

TEST_P(Linear, GeluBackwardIsTheInputsGradientThroughGelu) {
  prepare();
  const DType t = shape_.dtype;
  const std::int64_t n = shape_.rows * shape_.in;
  Values z = random_values(n, 5, t);
  for (std::size_t i = 0; i < z.size(); i += 2) z[i] *= 4;
  const Values dx = expected_dx();
  Values expected;
  for (std::size_t i = 0; i < z.size(); ++i) {
    expected.push_back(reference::differences(reference::gelu, {z[i]}, {dx[i]})[0]);
  }
  const Values sums = reference::column_sums(expected, shape_.rows, shape_.in);
  for (const DType gradient : {t, DType::fp32}) {
    const View dz = h_.empty(n, t);
    const View y = h_.empty(n, t);
    const View dbias = h_.empty(shape_.in, gradient);
    h_.ops->linear_backward_input(shape_, h_.tensor(dy_, t), h_.tensor(weight_, t), dz);
    h_.ops->gelu_backward({shape_.rows, shape_.in, t}, h_.tensor(z, t), dz, y, dbias);
    expect_near(h_.read(dz), expected, rounding(t), "dz");
    expect_near(h_.read(y), reference::gelu(z), rounding(t), "y");
    expect_near(h_.read(dbias), sums, rounding(t), "dbias of " + label(gradient));
    const View alone = h_.empty(n, t);
    h_.ops->linear_backward_input(shape_, h_.tensor(dy_, t), h_.tensor(weight_, t), alone);
    h_.ops->gelu_backward({shape_.rows, shape_.in, t}, h_.tensor(z, t), alone, View(), dbias);
    EXPECT_EQ(h_.read(alone), h_.read(dz)) << "without y";
  }
}

TEST_P(Linear, BackwardParametersAreThoseOfWeightAndBias) {
  const DType t = shape_.dtype;
  for (const DType gradient : {t, DType::fp32}) {
    shape_.weight_gradient = gradient;
    prepare();
    const View dweight = h_.empty(shape_.in * shape_.out, gradient);
    const View dbias = h_.empty(shape_.out, gradient);
    h_.ops->linear_backward_parameters(shape_, h_.tensor(x_, t), h_.tensor(dy_, t), dweight, dbias);
    expect_near(h_.read(dweight), expected_dweight(), rounding(gradient), "dW");
    expect_near(h_.read(dbias), reference::column_sums(dy_, shape_.rows, shape_.out),
                rounding(gradient), "dbias");
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Linear, ::testing::ValuesIn(linear_cases()),
                         [](const auto& tested) {
                           const LinearCase& c = tested.param;
                           return fmt::format(
                               "{}_{}x{}x{}_{}",
                               c.layout == WeightLayout::in_out ? "in_out" : "out_in", c.rows, c.in,
                               c.out, name_of(c.dtype));
                         });

TEST(OpsErrors, AnOperandOfAnotherSizeIsNamedWithBothCounts) {
  Harness h;
  const View x = h.empty(6, DType::fp32);
  const std::string message = error_of([&] {
    h.ops->column_sums({2, 4, DType::fp32}, x, h.empty(4, DType::fp32));
  });
  EXPECT_THAT(message, ::testing::HasSubstr("column_sums: operand x holds 6 x fp32, expected 8"));
}

TEST(OpsErrors, AnOperandOfAnotherTypeIsNamedWithBothTypes) {
  Harness h;
  const std::string message =
      error_of([&] { h.ops->add(h.empty(4, DType::fp32), h.empty(4, DType::bf16), View()); });
  EXPECT_THAT(message, ::testing::HasSubstr("operand delta holds 4 x bf16, expected 4 x fp32"));
}

TEST(OpsErrors, OtherTypesThanFp32Bf16AndFp16AreRefused) {
  Harness h;
  const View x = h.empty(4, DType::fp64);
  EXPECT_THAT(error_of([&] { h.ops->gelu_forward(x, x); }),
              ::testing::HasSubstr("computes in fp32, bf16 or fp16, not in fp64"));
}

TEST(OpsErrors, AnUnpreparedShapeSaysToPrepareIt) {
  Harness h;
  h.ops->allocate_scratch();
  const View x = h.empty(8, DType::fp32);
  const std::string message = error_of([&] {
    h.ops->column_sums({2, 4, DType::fp32}, x, h.empty(4, DType::fp32));
  });
  EXPECT_THAT(message, ::testing::HasSubstr("prepare() its shape before allocate_scratch()"));
}

TEST(OpsErrors, RowsThatOverlapOrHaveGapsInTheWrongPlaceAreRefused) {
  Harness h;
  const View x = h.empty(80, DType::fp32);
  const LinearShape narrow{4, 2, 10, WeightLayout::in_out, DType::fp32, DType::fp32, 8};
  EXPECT_THAT(error_of([&] { h.ops->linear_backward_input(narrow, x, x, x); }),
              ::testing::HasSubstr("linear_backward_input: rows of 10 elements begin 8 apart, "
                                   "expected 10 at least"));
  EXPECT_THAT(error_of([&] {
                h.ops->cross_entropy_forward({4, 10, DType::fp32, 0, 8}, x, x, x);
              }),
              ::testing::HasSubstr("cross_entropy_forward: rows of 10 elements begin 8 apart"));
  LinearShape wide = narrow;
  wide.out_stride = 16;
  EXPECT_THAT(error_of([&] { h.ops->linear_forward(wide, x, x, x, x); }),
              ::testing::HasSubstr("linear_forward: bias: rows of 10 elements begin 16 apart, "
                                   "expected no gaps"));
  EXPECT_THAT(error_of([&] {
                h.ops->linear_gelu_forward(wide, {x, x, x, x, x});
              }),
              ::testing::HasSubstr("linear_gelu_forward: rows of 10"));
  EXPECT_THAT(error_of([&] { h.ops->linear_backward_parameters(wide, x, x, x, x); }),
              ::testing::HasSubstr("linear_backward_parameters: rows of 10"));
}

TEST(OpsErrors, ApplyingANormToADeltaIsRefused) {
  Harness h;
  const View x = h.empty(4, DType::fp32);
  const View statistics = h.empty(2, DType::fp32);
  const NormForward o{x, x, x, x, x, x, statistics};
  EXPECT_THAT(error_of([&] {
                h.ops->norm_apply({1, 4, DType::fp32}, o);
              }),
              ::testing::HasSubstr("layer_norm_apply: takes no delta"));
}

}  // namespace
}  // namespace zero::testing
