// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "optim/optimizer.h"
#include "optim/update.h"

namespace zero::cpu {

// 8-bit moments to and from fp32, in host memory; the same bits on every SIMD target.

/// out = the values of the codes.
void decode_moment(const CodedMoment& from, float* out);

/// Encodes values to `to`, which begins a block: codes, and a scale for each block that is begun:
/// the largest magnitude, 0 if that is below kSmallestScale, and NaN if a value is not finite.
/// decode_moment() of the result encodes to the same codes and scales.
void encode_moment(const float* values, const CodedMoment& to);

// Updates elements [begin, end) of memory whose moments have a small format, in one pass over
// memory; `memory` has no moments. 8-bit moments: `begin` is a block's, and so is `end` unless it
// is the end of the update.

void update_small_adamw(const AdamConstants& constants, const UpdateMemory& memory,
                        const SmallMoments& moments, std::int64_t begin, std::int64_t end);
void update_small_adam(const AdamConstants& constants, const UpdateMemory& memory,
                       const SmallMoments& moments, std::int64_t begin, std::int64_t end);
/// With momentum.
void update_small_sgd(const SgdConstants& constants, const UpdateMemory& memory,
                      const SmallMoments& moments, std::int64_t begin, std::int64_t end);

}  // namespace zero::cpu
