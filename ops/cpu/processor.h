// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace zero::cpu {

/// A processor's instructions for products of bf16; each level includes those before it.
enum class Bf16Instructions : std::uint8_t {
  none,
  pairs,  ///< AVX512_BF16: vectors of pairs; with AVX512_VBMI, which only Cooper Lake lacks
  tiles,  ///< AMX, which the system must permit
};

/// The best instructions for products of this process: those of processor and system, up to the
/// limit.
Bf16Instructions bf16_instructions();
/// Limits the process to the instructions of `most`. Call before the first product; for programs
/// and tests that imitate another processor.
void limit_bf16_instructions(Bf16Instructions most);

}  // namespace zero::cpu
