// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/cpu/products.h"

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>

#include "model/cpu/packed_product.h"

namespace zero::cpu {
namespace {

// oneDNN's word: it asks the system for AMX, and users limit it (ONEDNN_MAX_CPU_ISA).
bool processor_has(dnnl::cpu_isa wanted) {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (isa & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
}

const packed::Kernels& choose_bf16_kernels() {
  const packed::Kernels* kernels = nullptr;
  if (processor_has(dnnl::cpu_isa::avx512_core_amx)) {
    kernels = packed::tile_kernels();
  } else if (processor_has(dnnl::cpu_isa::avx512_core_bf16) && packed::pairs_are_fast()) {
    kernels = packed::pair_kernels();
  }
  return kernels != nullptr ? *kernels : packed::float_kernels();
}

// Asked for each operand that is packed: the processor is asked once.
const packed::Kernels& kernels_for(DType dtype) {
  static const packed::Kernels& of_bf16 = choose_bf16_kernels();
  return dtype == DType::bf16 ? of_bf16 : packed::float_kernels();
}

}  // namespace

std::string_view name_of_kernels(DType dtype) {
  const packed::Kernels* const kernels = &kernels_for(dtype);
  if (kernels == packed::tile_kernels()) return "tiles";
  return kernels == packed::pair_kernels() ? "pairs" : "floats";
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
    slot = make_packed_product(shape, threads_, kernels_for(shape.in), right);
    scratch_bytes_ = std::max(scratch_bytes_, slot->scratch_bytes());
  }
  return *slot;
}

}  // namespace zero::cpu
