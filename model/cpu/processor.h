// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace zero::cpu {

/// The instructions that a processor has for products of bf16; each has all before it.
enum class Bf16Instructions : std::uint8_t {
  none,
  pairs,  ///< AVX512_BF16: vectors of pairs
  tiles,  ///< AMX, which the system must allow
};

/// The best that products of this process may use: what processor and system have, up to the limit.
Bf16Instructions bf16_instructions();
/// Has the process compute as if its processor had no more than `most`. Before the first product;
/// for programs and tests that imitate another processor.
void limit_bf16_instructions(Bf16Instructions most);

}  // namespace zero::cpu
