// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "optim/optimizer.h"

namespace zero::cpu {

// 8-bit moments to and from fp32, in host memory; the same bits on every SIMD target.

/// out = the values of the codes.
void decode_moment(const CodedMoment& from, float* out);

/// Encodes values to `to`, which begins a block: codes, and a scale for each block that is begun:
/// the largest magnitude, 0 if that is below kSmallestScale, and NaN if a value is not finite.
/// decode_moment() of the result encodes to the same codes and scales.
void encode_moment(const float* values, const CodedMoment& to);

}  // namespace zero::cpu
