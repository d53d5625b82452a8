// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "model/cpu/packed_kernels.h"
#include "model/cpu/products.h"

namespace zero::cpu {

/// A product by `kernels`, which must outlive it. Every element of the result is one fp32 sum in
/// the order of k, rounded once: its bits depend on the kernels and on nothing else, neither on the
/// threads nor on how the work is cut. Operands are packed into the caches piece by piece,
/// transposed on the way, so weights' gradients run at the rate of the other products.
std::unique_ptr<Product> make_packed_product(const ProductShape& shape, int threads,
                                             const packed::Kernels& kernels,
                                             Right right = Right::in_memory);

/// As the functions of products.h.
std::int64_t packed_right_bytes(const ProductShape& shape, const packed::Kernels& kernels);
PackedRight pack_right(const ProductShape& shape, const packed::Kernels& kernels, const void* b,
                       void* to);

}  // namespace zero::cpu
