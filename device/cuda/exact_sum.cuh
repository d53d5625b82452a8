// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/cuda/launch.cuh"
#include "device/exact_sum.h"

namespace zero::cuda {

/// A limb of an ExactSum for kernels: two's complement, added to by integer atomics, so that their
/// order does not matter.
using Limb = unsigned long long;

/// Adds doubles that are not negative to limbs, as ExactSum::add does. Neighbours are mostly of
/// similar magnitude: addends of the same limbs are summed in registers, until flush().
class LimbAdder {
 public:
  __device__ void add(double value, Limb* limbs) {
    const auto bits = static_cast<Limb>(__double_as_longlong(value));
    if (!(value < 0x1p512)) {
      atomicAdd(limbs + ExactSum::kLimbs - 1, Limb{1});
      return;
    }
    const int exponent = static_cast<int>(bits >> 52) & 0x7ff;
    if (exponent == 0) return;
    Limb mantissa = (bits & 0xfffffffffffffULL) | 0x10000000000000ULL;
    int position = exponent - 1075 + 512;  // of the mantissa's lowest bit, from 2^-512
    if (position < 0) {
      if (position <= -53) return;
      mantissa >>= -position;
      position = 0;
    }
    const int shift = position % 32;
    if (position / 32 != at_) {
      flush(limbs);
      at_ = position / 32;
    }
    const Limb lower = mantissa << shift;
    low_ += lower & 0xffffffffULL;
    middle_ += lower >> 32;
    high_ += (mantissa >> 32) >> (32 - shift);
  }

  __device__ void flush(Limb* limbs) {
    if (low_ != 0) atomicAdd(limbs + at_, low_);
    if (middle_ != 0) atomicAdd(limbs + at_ + 1, middle_);
    if (high_ != 0) atomicAdd(limbs + at_ + 2, high_);
    low_ = middle_ = high_ = 0;
  }

 private:
  int at_ = 0;
  Limb low_ = 0;
  Limb middle_ = 0;
  Limb high_ = 0;
};

}  // namespace zero::cuda
