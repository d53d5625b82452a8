// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tests/ops/ops_harness.h"

namespace zero::testing {

/// All that a head computes from 9 rows of 45 logits that begin `stride` elements apart, without
/// what lies between the rows, which must stay as it was.
inline std::vector<std::vector<std::byte>> head_with_rows_apart(Harness& h, DType dtype,
                                                                std::int64_t stride) {
  constexpr std::int64_t rows = 9, columns = 45, width = 30;
  const LinearShape s{rows, width, columns, WeightLayout::out_in, dtype, DType::fp32, stride};
  const LogitsShape l{rows, columns, dtype, 0, stride};
  h.ops->prepare(s, Ops::LinearUse::training);
  h.ops->allocate_scratch();
  const View x = h.tensor(random_values(rows * width, 1), dtype);
  const View weight = h.tensor(random_values(columns * width, 2), dtype);
  const View targets = h.tokens(random_tokens(rows, columns, 3));
  const View logits = h.empty(rows * stride, dtype);
  const View again = h.empty(rows * stride, dtype);
  const View evaluated = h.empty(rows, DType::fp64);
  const View losses = h.empty(rows, DType::fp64);
  const View parts = h.empty(rows * kSoftmaxPart, DType::fp32);
  const View dx = h.empty(rows * width, dtype);
  const View dweight = h.empty(columns * width, DType::fp32);
  h.ops->linear_forward(s, x, weight, View(), logits);
  h.ops->linear_forward(s, x, weight, View(), again);
  h.ops->cross_entropy_forward(l, logits, targets, evaluated);
  h.ops->softmax_part(l, logits, targets, parts);
  h.ops->cross_entropy_backward(l, logits, targets, 0.5F, losses);
  h.ops->cross_entropy_gradient(l, again, targets, parts, 0.5F);
  h.ops->linear_backward_input(s, logits, weight, dx);
  h.ops->linear_backward_weight(s, x, logits, dweight, Write::overwrite);
  h.ops->linear_backward_weight(s, x, again, dweight, Write::add);
  std::vector<std::vector<std::byte>> all;
  for (const View& view : {evaluated, losses, parts, dx, dweight}) all.push_back(h.bytes(view));
  for (const View& view : {logits, again}) {
    for (std::int64_t row = 0; row < rows; ++row) {
      all.push_back(h.bytes(view.slice(row * stride, columns)));
      const auto gap = h.bytes(view.slice(row * stride + columns, stride - columns));
      EXPECT_EQ(gap, std::vector<std::byte>(gap.size(), std::byte{0xff})) << "row " << row;
    }
  }
  return all;
}

}  // namespace zero::testing
