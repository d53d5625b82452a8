// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/products.h"

#include <algorithm>

#include "ops/cpu/packed_product.h"
#include "ops/cpu/processor.h"

namespace zero::cpu {
namespace {

const packed::Kernels& choose_bf16_kernels() {
  const packed::Kernels* kernels = nullptr;
  const Bf16Instructions instructions = bf16_instructions();
  if (instructions == Bf16Instructions::tiles) {
    kernels = packed::tile_kernels();
  } else if (instructions == Bf16Instructions::pairs && packed::pairs_are_fast()) {
    kernels = packed::pair_kernels();
  }
  return kernels != nullptr ? *kernels : packed::float_kernels();
}

// Called for each packed operand, hence cached.
const packed::Kernels& kernels_for(DType dtype) {
  static const packed::Kernels& of_bf16 = choose_bf16_kernels();
  return dtype == DType::bf16 ? of_bf16 : packed::float_kernels();
}

}  // namespace

KernelKind kernels_of(DType dtype) {
  const packed::Kernels* const kernels = &kernels_for(dtype);
  if (kernels == packed::tile_kernels()) return KernelKind::tiles;
  return kernels == packed::pair_kernels() ? KernelKind::pairs : KernelKind::floats;
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

double flop_in_registers(DType dtype, std::int64_t turns) {
  const packed::Kernels& kernels = kernels_for(dtype);
  if (kernels.in_registers == nullptr) return 0;
  kernels.begin();
  const double flop = kernels.in_registers(turns);
  kernels.end();
  return flop;
}

std::int64_t packed_right_bytes(const ProductShape& shape) {
  return packed_right_bytes(shape, kernels_for(shape.in));
}

PackedRight pack_right(const ProductShape& shape, const void* b, void* to) {
  return pack_right(shape, kernels_for(shape.in), b, to);
}

Product& Products::get(const ProductShape& shape, Right right) {
  auto& slot = made_[{shape, right}];
  if (!slot) {
    const bool fp32 = right == Right::packed_fp32;
    slot = make_packed_product(shape, threads_, kernels_for(fp32 ? DType::fp32 : shape.in),
                               fp32 ? Right::packed : right);
    scratch_bytes_ = std::max(scratch_bytes_, slot->scratch_bytes());
  }
  return *slot;
}

}  // namespace zero::cpu
