// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "model/op_listener.h"
#include "model/ops.h"

namespace zero {

/// A call of one of Ops' public methods.
struct OpCall {
  std::string_view name;
  DType dtype = DType::fp32;             ///< of the arithmetic: fp32 or bf16
  const LinearShape* product = nullptr;  ///< of a layer: its sizes join the name a listener hears
  double flop = 0;                       ///< beside the product's
};

/// An operand of a call: its expected size, by which it is checked and its bytes are counted.
struct OpOperand {
  static constexpr std::int64_t kOnce = -1;

  std::string_view name;
  View view;
  std::int64_t count = 0;
  DType dtype = DType::fp32;
  std::int64_t moved = kOnce;  ///< elements read and written; kOnce: `count`
};

/// An operand that a caller may leave out by an empty view.
OpOperand optional(std::string_view name, View view, std::int64_t count, DType dtype);
/// The dtype of an operand that may be fp32 instead of `dtype`: a gradient or a product.
DType or_fp32(View view, DType dtype);
/// Throws zero::Error, with the operation and the operand, found and expected.
void check(const OpCall& call, std::initializer_list<OpOperand> operands);
/// The same if rows of `columns` elements overlap at `stride`.
void check_stride(std::string_view operation, std::int64_t columns, std::int64_t stride);
OpCost cost_of(const OpCall& call, std::initializer_list<OpOperand> operands);

/// Tells a listener of an operation, and at the end of the scope of its end.
class HeardOp {
 public:
  HeardOp(OpListener& listener, const OpCost& cost) : listener_(listener) { listener.begin(cost); }
  HeardOp(const HeardOp&) = delete;
  HeardOp& operator=(const HeardOp&) = delete;
  ~HeardOp() { listener_.end(); }

 private:
  OpListener& listener_;
};

template <typename Body>
void Ops::run(const OpCall& call, std::initializer_list<OpOperand> operands, const Body& body) {
  check(call, operands);
  if (listener_ == nullptr) return body();
  const HeardOp heard(*listener_, cost_of(call, operands));
  body();
}

}  // namespace zero
