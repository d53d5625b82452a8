// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/products.h"

#include <algorithm>

#include "ops/cpu/product_choice.h"

namespace zero::cpu {

double flop_in_registers(DType dtype, std::int64_t turns) {
  const packed::Kernels& kernels = gemm_kernels(dtype);
  if (kernels.in_registers == nullptr) return 0;
  kernels.begin();
  const double flop = kernels.in_registers(turns);
  kernels.end();
  return flop;
}

std::int64_t packed_right_bytes(const ProductShape& shape) {
  return packed_right_bytes(shape, gemm_kernels(shape.in));
}

PackedRight pack_right(const ProductShape& shape, const void* b, void* to) {
  return pack_right(shape, gemm_kernels(shape.in), b, to);
}

const Product& Products::get(const ProductShape& shape, Right right) {
  const auto at = made_.find({shape, right});
  if (at != made_.end()) return at->second;
  const bool fp32 = right == Right::packed_fp32;
  const Product& made =
      made_
          .try_emplace({shape, right}, shape, threads_, gemm_kernels(fp32 ? DType::fp32 : shape.in),
                       fp32 ? Right::packed : right)
          .first->second;
  scratch_bytes_ = std::max(scratch_bytes_, made.scratch_bytes());
  return made;
}

}  // namespace zero::cpu
