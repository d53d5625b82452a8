// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/cpu/cut.h"
#include "model/cpu/packed_kernels.h"
#include "model/product_shape.h"

namespace zero::cpu::packed {

/// An operand in memory. Its lanes are rows of the result if it is the left one, columns if right.
struct Source {
  enum class Along : std::uint8_t { depth, lanes } along;  ///< what lies side by side
  Form form;
  DType dtype;
  std::int64_t stride;  ///< elements between rows of memory
};

Source left_source(const ProductShape& shape);
Source right_source(const ProductShape& shape);

/// Packs lanes x depth of the operand `data` to `to`: squares by lane, then by depth.
void fill(const Kernels& kernels, const Source& source, const void* data, Range lanes, Range depth,
          std::byte* to);

}  // namespace zero::cpu::packed
