// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/half.h"
#include "device/view.h"

namespace zero::cpu {

/// Calls body(std::type_identity<T>{}) with the element type of fp32, bf16 or fp16; operands are
/// already checked to be one of them.
template <typename Body>
void with_type(DType dtype, Body&& body) {
  if (dtype == DType::bf16) {
    body(std::type_identity<bfloat16>{});
  } else if (dtype == DType::fp16) {
    body(std::type_identity<float16>{});
  } else {
    body(std::type_identity<float>{});
  }
}

/// The first element of row `row` of a row-major matrix whose rows begin `stride` elements apart.
template <typename T>
T* row_of(const View& view, std::int64_t row, std::int64_t stride) {
  return static_cast<T*>(view.data()) + row * stride;
}

}  // namespace zero::cpu
