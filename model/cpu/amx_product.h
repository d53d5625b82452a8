// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "model/cpu/products.h"

namespace zero::cpu {

/// A bf16 product on AMX tiles, for processors that have them; nothing where this build has no such
/// kernels. Every element of the result is one fp32 sum in the order of k, rounded once: its bits
/// depend on nothing else, neither on the threads nor on how the work is cut. Operands are packed
/// into the caches piece by piece, transposed on the way, so weights' gradients run at the rate of
/// the other products, which oneDNN 2.6 does not reach.
std::unique_ptr<Product> make_amx_product(const ProductShape& shape, int threads);

}  // namespace zero::cpu
