// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>

#include "ops/op_listener.h"
#include "ops/op_shapes.h"

namespace zero {

/// A call of one of Ops' public methods.
struct OpCall {
  std::string_view name;
  DType dtype = DType::fp32;             ///< dtype of the arithmetic: fp32, bf16 or fp16
  const LinearShape* product = nullptr;  ///< a layer's: adds its sizes to the listener's name
  double flop = 0;                       ///< in addition to the product's
};

/// An operand of a call with its expected size, for the check and the count of bytes.
struct OpOperand {
  static constexpr std::int64_t kOnce = -1;

  std::string_view name;
  View view;
  std::int64_t count = 0;
  DType dtype = DType::fp32;
  std::int64_t moved = kOnce;  ///< elements read and written; kOnce: `count`
  Access access = Access::read;
};

/// The same operand, whose values the call replaces; `updated`: which it reads, too.
inline OpOperand written(OpOperand operand) {
  operand.access = Access::write;
  return operand;
}
inline OpOperand updated(OpOperand operand) {
  operand.access = Access::update;
  return operand;
}

/// An operand that may be absent (an empty view).
OpOperand optional(std::string_view name, View view, std::int64_t count, DType dtype);
/// The dtype of an operand that may be fp32 instead of `dtype`: a gradient or a product.
DType or_fp32(View view, DType dtype);
/// Throws zero::Error, with operation, operand, found and expected, if an operand does not match.
void check(const OpCall& call, std::initializer_list<OpOperand> operands);
/// Throws zero::Error if rows of `columns` elements overlap at `stride`.
void check_stride(std::string_view operation, std::int64_t columns, std::int64_t stride);
/// Throws zero::Error if there are gaps between rows: biases and GELU require none.
void check_dense(std::string_view operation, const LinearShape& shape);

/// A call of an operation, from its checks to its end: throws as check(), then notifies the
/// listener, which may be null, of the operation and its operands, and when destroyed of its end.
class TracedOp {
 public:
  TracedOp(OpListener* listener, const OpCall& call, std::initializer_list<OpOperand> operands);

 private:
  struct End {
    void operator()(OpListener* listener) const noexcept { listener->end(); }
  };
  std::unique_ptr<OpListener, End> begun_;
};

}  // namespace zero
