// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/packed_kernels.h"

namespace zero::cpu::packed {

const Kernels* pair_kernels() { return nullptr; }
const Kernels* tile_kernels() { return nullptr; }
bool pairs_are_fast() { return false; }

}  // namespace zero::cpu::packed
