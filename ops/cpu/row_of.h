// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "device/view.h"

namespace zero::cpu {

/// The first element of row `row` of a row-major matrix whose rows begin `stride` elements apart.
template <typename T>
T* row_of(const View& view, std::int64_t row, std::int64_t stride) {
  return static_cast<T*>(view.data()) + row * stride;
}

}  // namespace zero::cpu
