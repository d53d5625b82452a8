// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "ops/cpu/packed_kernels.h"
#include "ops/cpu/product.h"
#include "ops/product_shape.h"

namespace zero::cpu {

/// A product by `kernels`, which must outlive it. Every element of the result is one fp32 sum in
/// the order of k, rounded once: its bits depend on the kernels only, not on the number of threads
/// or the partition of the work. Operands are packed into the caches piece by piece, transposed if
/// needed, so that weights' gradients run at the rate of the other products; a left operand whose
/// rows are whole cache lines is read in place.
std::unique_ptr<Product> make_packed_product(const ProductShape& shape, int threads,
                                             const packed::Kernels& kernels,
                                             Right right = Right::in_memory);

/// The same as the functions of products.h.
std::int64_t packed_right_bytes(const ProductShape& shape, const packed::Kernels& kernels);
PackedRight pack_right(const ProductShape& shape, const packed::Kernels& kernels, const void* b,
                       void* to);

}  // namespace zero::cpu
