// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
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
inline OpOperand optional(std::string_view name, View view, std::int64_t count, DType dtype) {
  return {name, view, view.empty() ? 0 : count, dtype};
}
/// The dtype of an operand that may be fp32 instead of `dtype`: a gradient or a product.
inline DType or_fp32(View view, DType dtype) {
  return view.dtype() == DType::fp32 ? DType::fp32 : dtype;
}
/// Throws zero::Error, with operation, operand, found and expected, if an operand does not match.
inline void check(const OpCall& call, std::initializer_list<OpOperand> operands) {
  const bool computes =
      call.dtype == DType::fp32 || call.dtype == DType::bf16 || call.dtype == DType::fp16;
  ZERO_CHECK(computes, "{}: computes in fp32, bf16 or fp16, not in {}", call.name,
             name_of(call.dtype));
  for (const OpOperand& operand : operands) {
    ZERO_CHECK(operand.view.count() == operand.count &&
                   (operand.count == 0 || operand.view.dtype() == operand.dtype),
               "{}: operand {} holds {} x {}, expected {} x {}", call.name, operand.name,
               operand.view.count(), name_of(operand.view.dtype()), operand.count,
               name_of(operand.dtype));
  }
}
/// Throws zero::Error if rows of `columns` elements overlap at `stride`.
inline void check_stride(std::string_view operation, std::int64_t columns, std::int64_t stride) {
  ZERO_CHECK(stride >= columns, "{}: rows of {} elements begin {} apart, expected {} at least",
             operation, columns, stride, columns);
}
/// Throws zero::Error if there are gaps between rows: biases and GELU require none.
inline void check_dense(std::string_view operation, const LinearShape& s) {
  ZERO_CHECK(s.row_stride() == s.out,
             "{}: rows of {} elements begin {} apart, expected no gaps between them", operation,
             s.out, s.row_stride());
}

inline OpCost cost_of(const OpCall& call, std::initializer_list<OpOperand> operands) {
  OpCost cost{.name = std::string(call.name), .flop = call.flop};
  for (const OpOperand& operand : operands) {
    const std::int64_t moved = operand.moved == OpOperand::kOnce ? operand.count : operand.moved;
    cost.bytes += static_cast<double>(moved) * static_cast<double>(size_of(operand.dtype));
  }
  if (call.product == nullptr) return cost;
  const LinearShape& s = *call.product;
  cost.name += fmt::format(" {}x{}", s.in, s.out);
  cost.flop +=
      2.0 * static_cast<double>(s.rows) * static_cast<double>(s.in) * static_cast<double>(s.out);
  return cost;
}

/// Tells the listener of all operands: first those that the operation only reads, because it may
/// write its result over one of them.
inline void notify_of(std::initializer_list<OpOperand> operands, OpListener& listener) {
  for (const bool writes : {false, true}) {
    for (const OpOperand& operand : operands) {
      if (operand.view.empty() || (operand.access != Access::read) != writes) continue;
      listener.touches(operand.view, operand.access);
    }
  }
}

/// A call of an operation, from its checks to its end: throws as check(), then notifies the
/// listener, which may be null, of the operation and its operands, and when destroyed of its end.
class TracedOp {
 public:
  TracedOp(OpListener* listener, const OpCall& call, std::initializer_list<OpOperand> operands) {
    check(call, operands);
    if (listener == nullptr) return;
    listener->begin(cost_of(call, operands));
    begun_.reset(listener);
    notify_of(operands, *listener);
  }

 private:
  struct End {
    void operator()(OpListener* listener) const noexcept { listener->end(); }
  };
  std::unique_ptr<OpListener, End> begun_;
};

}  // namespace zero
