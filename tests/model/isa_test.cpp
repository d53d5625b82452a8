// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "base/error.h"
#include "tests/model/ops_harness.h"

namespace zero::testing {
namespace {

// A program of its own: the limit holds for a whole process, before its first product.
TEST(OldProcessor, WithoutAvx512Bf16IsRefusedWithTheWayOutAndFp32Works) {
  ASSERT_EQ(dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2), dnnl::status::success);
  Harness h;
  LinearShape shape{3, 4, 5, WeightLayout::in_out, DType::bf16, DType::bf16};
  try {
    h.ops->prepare(shape, Ops::LinearUse::training);
    ADD_FAILURE() << "bf16 products on AVX2 were not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("no product (3 x 4) * (4 x 5) of bf16 on this "
                                                   "machine"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("bf16 needs AVX-512, use fp32 without it"));
  }
  shape.dtype = shape.weight_gradient = DType::fp32;
  h.ops->prepare(shape, Ops::LinearUse::training);
  h.ops->allocate_scratch();
  const Values x = random_values(12, 1);
  const Values weight = random_values(20, 2);
  const View y = h.empty(15, DType::fp32);
  h.ops->linear_forward(shape, h.tensor(x, DType::fp32), h.tensor(weight, DType::fp32), View(), y);
  expect_near(h.read(y), reference::product(x, weight, 3, 4, 5), 1e-6, "y");
}

}  // namespace
}  // namespace zero::testing
