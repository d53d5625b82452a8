// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/op_call.h"

#include <fmt/format.h>

#include "base/error.h"

namespace zero {
namespace {

OpCost cost_of(const OpCall& call, std::initializer_list<OpOperand> operands) {
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
void notify_of(std::initializer_list<OpOperand> operands, OpListener& listener) {
  for (const bool writes : {false, true}) {
    for (const OpOperand& operand : operands) {
      if (operand.view.empty() || (operand.access != Access::read) != writes) continue;
      listener.touches(operand.view, operand.access);
    }
  }
}

}  // namespace

OpOperand optional(std::string_view name, View view, std::int64_t count, DType dtype) {
  return {name, view, view.empty() ? 0 : count, dtype};
}

DType or_fp32(View view, DType dtype) { return view.dtype() == DType::fp32 ? DType::fp32 : dtype; }

void check(const OpCall& call, std::initializer_list<OpOperand> operands) {
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

void check_stride(std::string_view operation, std::int64_t columns, std::int64_t stride) {
  ZERO_CHECK(stride >= columns, "{}: rows of {} elements begin {} apart, expected {} at least",
             operation, columns, stride, columns);
}

void check_dense(std::string_view operation, const LinearShape& s) {
  ZERO_CHECK(s.row_stride() == s.out,
             "{}: rows of {} elements begin {} apart, expected no gaps between them", operation,
             s.out, s.row_stride());
}

TracedOp::TracedOp(OpListener* listener, const OpCall& call,
                   std::initializer_list<OpOperand> operands) {
  check(call, operands);
  if (listener == nullptr) return;
  listener->begin(cost_of(call, operands));
  begun_.reset(listener);
  notify_of(operands, *listener);
}

}  // namespace zero
