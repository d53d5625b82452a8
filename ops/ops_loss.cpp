// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Cross-entropy.
#include "base/checked_math.h"
#include "ops/op_call.h"

namespace zero {
namespace {

/// Read once, or read and written.
OpOperand matrix(std::string_view operation, const LogitsShape& s, View logits,
                 std::int64_t times) {
  check_stride(operation, s.columns, s.row_stride());
  return {"logits", logits, checked_mul(s.rows, s.row_stride()), s.dtype,
          times * s.rows * s.columns};
}

}  // namespace

void Ops::cross_entropy_forward(const LogitsShape& s, View logits, View targets, View losses) {
  run({"cross_entropy_forward", s.dtype},
      {matrix("cross_entropy_forward", s, logits, 1),
       {"targets", targets, s.rows, DType::i32},
       {"losses", losses, s.rows, DType::fp64}},
      [&] { do_cross_entropy_forward(s, logits, targets, losses); });
}

void Ops::cross_entropy_backward(const LogitsShape& s, View logits, View targets, float scale,
                                 View losses) {
  run({"cross_entropy_backward", s.dtype},
      {matrix("cross_entropy_backward", s, logits, 2),
       {"targets", targets, s.rows, DType::i32},
       {"losses", losses, s.rows, DType::fp64}},
      [&] { do_cross_entropy_backward(s, logits, targets, scale, losses); });
}

void Ops::softmax_part(const LogitsShape& s, View logits, View targets, View parts) {
  run({"softmax_part", s.dtype},
      {matrix("softmax_part", s, logits, 1),
       {"targets", targets, s.rows, DType::i32},
       {"parts", parts, s.rows * kSoftmaxPart, DType::fp32}},
      [&] { do_softmax_part(s, logits, targets, parts); });
}

void Ops::fold_softmax(std::int64_t rows, std::int64_t ranks, View parts, View losses) {
  run({"fold_softmax"},
      {{"parts", parts, ranks * rows * kSoftmaxPart, DType::fp32},
       {"losses", losses, rows, DType::fp64}},
      [&] { do_fold_softmax(rows, ranks, parts, losses); });
}

void Ops::cross_entropy_gradient(const LogitsShape& s, View logits, View targets, View softmax,
                                 float scale) {
  run({"cross_entropy_gradient", s.dtype},
      {matrix("cross_entropy_gradient", s, logits, 2),
       {"targets", targets, s.rows, DType::i32},
       {"softmax", softmax, s.rows * kSoftmaxPart, DType::fp32}},
      [&] { do_cross_entropy_gradient(s, logits, targets, softmax, scale); });
}

void Ops::sum(View losses, View total) {
  run({"sum of losses"},
      {{"losses", losses, losses.count(), DType::fp64}, {"total", total, 1, DType::fp64}},
      [&] { do_sum(losses, total); });
}

}  // namespace zero
