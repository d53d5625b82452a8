// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "model/cpu/products.h"

namespace zero::cpu {

/// What a processor multiplies bf16 with.
enum class MatrixUnit : std::uint8_t { avx512_bf16, amx };

/// A bf16 product by our own kernels; nothing where this build has none. Every element of the
/// result is one fp32 sum in the order of k, rounded once: its bits depend on the unit and on
/// nothing else, neither on the threads nor on how the work is cut. Operands are packed into the
/// caches piece by piece, transposed on the way, so weights' gradients run at the rate of the other
/// products, which oneDNN 2.6 does not reach.
std::unique_ptr<Product> make_packed_product(const ProductShape& shape, int threads,
                                             MatrixUnit unit);

}  // namespace zero::cpu
