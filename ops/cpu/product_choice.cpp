// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/product_choice.h"

#include "ops/cpu/processor.h"
#include "ops/cpu/skinny_product.h"

namespace zero::cpu {
namespace {

KernelKind choose_bf16_kernels() {
  const Bf16Instructions instructions = bf16_instructions();
  if (instructions == Bf16Instructions::tiles && packed::tile_kernels() != nullptr) {
    return KernelKind::tiles;
  }
  if (instructions == Bf16Instructions::pairs && packed::pairs_are_fast()) {
    return KernelKind::pairs;
  }
  return KernelKind::floats;
}

}  // namespace

// Called for each packed operand, hence cached.
KernelKind kernels_of(DType dtype) {
  static const KernelKind of_bf16 = choose_bf16_kernels();
  return dtype == DType::bf16 ? of_bf16 : KernelKind::floats;
}

const packed::Kernels& gemm_kernels(DType dtype) {
  switch (kernels_of(dtype)) {
    case KernelKind::tiles:
      return *packed::tile_kernels();
    case KernelKind::pairs:
      return *packed::pair_kernels();
    case KernelKind::floats:
      break;
  }
  return packed::float_kernels();
}

std::string_view name_of(KernelKind kernels) {
  switch (kernels) {
    case KernelKind::tiles:
      return "tiles";
    case KernelKind::pairs:
      return "pairs";
    case KernelKind::floats:
      return "floats";
  }
  return "";
}

Algorithm algorithm_of(const WeightShape& shape, std::int64_t rows) {
  switch (kernels_of(shape.dtype)) {
    case KernelKind::tiles:
      return Algorithm::gemm;
    case KernelKind::pairs:
      return Algorithm::bf16_dot;
    case KernelKind::floats:
      break;
  }
  return rows <= SkinnyProduct::kMost && has_gemv() ? Algorithm::gemv : Algorithm::gemm;
}

DType product_dtype(const WeightShape& shape) {
  return kernels_of(shape.dtype) == KernelKind::floats ? DType::fp32 : shape.dtype;
}

}  // namespace zero::cpu
