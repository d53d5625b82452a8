// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/half.h"
#include "device/view.h"

namespace zero::toy {

/// Element `i` of an fp32, bf16 or fp16 view.
inline float get(const View& view, std::int64_t i) {
  const auto at = static_cast<std::size_t>(i);
  if (view.dtype() == DType::fp32) return view.as<const float>()[at];
  return view.dtype() == DType::fp16 ? to_float(view.as<const float16>()[at])
                                     : to_float(view.as<const bfloat16>()[at]);
}

inline void put(const View& view, std::int64_t i, float value) {
  if (view.dtype() == DType::fp32) {
    view.as<float>()[static_cast<std::size_t>(i)] = value;
  } else if (view.dtype() == DType::fp16) {
    view.as<float16>()[static_cast<std::size_t>(i)] = to_float16(value);
  } else {
    view.as<bfloat16>()[static_cast<std::size_t>(i)] = to_bfloat16(value);
  }
}

inline void add(const View& view, std::int64_t i, float value) {
  put(view, i, get(view, i) + value);
}

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace zero::toy
