// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "base/dtype.h"
#include "base/error.h"

namespace zero::cpu {

/// Calls body(std::type_identity<T>{}) with the element type of a dtype that converts: float,
/// bfloat16 or float16.
template <typename Body>
void dispatch(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::fp32:
      return body(std::type_identity<float>{});
    case DType::bf16:
      return body(std::type_identity<bfloat16>{});
    case DType::fp16:
      return body(std::type_identity<float16>{});
    default:
      fail("dtype {} has no fp32 conversion; expected fp32, bf16 or fp16", name_of(dtype));
  }
}

}  // namespace zero::cpu
