// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>
#include <utility>

namespace zero {
namespace {

constexpr int kFractionBits = 512;  // the lowest bit of limb 0 weighs 2^-512
constexpr int kNumberLimbs = ExactSum::kLimbs - 1;
constexpr int kTop = kNumberLimbs - 1;
constexpr std::int64_t kLimbMask = 0xffffffff;

using Limbs = std::span<std::int64_t, ExactSum::kLimbs>;

/// The unique form of the number with limbs 0 .. kTop-1 in [0, 2^32). The top limb keeps the sign.
void carry(Limbs limbs) {
  std::int64_t over = 0;
  for (std::size_t i = 0; i < kTop; ++i) {
    const std::int64_t sum = limbs[i] + over;
    limbs[i] = sum & kLimbMask;
    over = sum >> 32;  // rounds down, also below zero
  }
  limbs[kTop] += over;
}

/// 64 bits from `position` of a carried non-negative number.
std::uint64_t bits_at(const std::array<std::uint32_t, kNumberLimbs + 1>& words, int position) {
  std::uint64_t bits = 0;
  for (int i = 0; i < 64; ++i) {
    const int at = position + i;
    const auto word = static_cast<std::size_t>(at / 32);
    if (at >= 0 && ((words[word] >> (at % 32)) & 1U) != 0) bits |= std::uint64_t{1} << i;
  }
  return bits;
}

}  // namespace

void ExactSum::add(std::span<const double> values) {
  // Neighbours are mostly of similar magnitude: addends of the same limbs are summed in registers.
  std::size_t at = 0;
  std::int64_t low = 0;
  std::int64_t middle = 0;
  std::int64_t high = 0;
  const auto flush = [&] {
    limbs_[at] += std::exchange(low, 0);
    limbs_[at + 1] += std::exchange(middle, 0);
    limbs_[at + 2] += std::exchange(high, 0);
  };
  for (const double value : values) {
    if (!(std::abs(value) < 0x1p512)) {
      ++limbs_[kLimbs - 1];
      continue;
    }
    const auto bits = std::bit_cast<std::uint64_t>(value);
    const int exponent = static_cast<int>((bits >> 52) & 0x7ff);
    if (exponent == 0) continue;  // below 2^-1022: no bits at or above 2^-512
    std::uint64_t mantissa = (bits & 0xfffffffffffffULL) | 0x10000000000000ULL;
    int position = exponent - 1075 + kFractionBits;  // of the mantissa's lowest bit
    if (position < 0) {
      if (position <= -53) continue;
      mantissa >>= -position;
      position = 0;
    }
    const auto limb = static_cast<std::size_t>(position / 32);
    const int shift = position % 32;
    if (limb != at) {
      flush();
      at = limb;
    }
    const std::int64_t sign = std::signbit(value) ? -1 : 1;
    const std::uint64_t lower = mantissa << shift;
    low += sign * static_cast<std::int64_t>(lower & kLimbMask);
    middle += sign * static_cast<std::int64_t>(lower >> 32);
    high += sign * static_cast<std::int64_t>((mantissa >> 32) >> (32 - shift));
  }
  flush();
}

void ExactSum::add(const ExactSum& other) {
  for (std::size_t i = 0; i < kLimbs; ++i) limbs_[i] += other.limbs_[i];
  carry(limbs_);
}

double ExactSum::value() const {
  if (nonfinite() != 0) return std::numeric_limits<double>::quiet_NaN();
  std::array<std::int64_t, kLimbs> limbs = limbs_;
  carry(limbs);
  const bool negative = limbs[kTop] < 0;
  if (negative) {
    for (std::int64_t& limb : limbs) limb = -limb;
    carry(limbs);
  }
  std::array<std::uint32_t, kNumberLimbs + 1> words{};
  for (std::size_t i = 0; i < kNumberLimbs; ++i) {
    words[i] = static_cast<std::uint32_t>(limbs[i] & kLimbMask);
  }
  words[kNumberLimbs] = static_cast<std::uint32_t>(limbs[kTop] >> 32);

  int length = 32 * (kNumberLimbs + 1);
  while (length > 0 &&
         ((words[static_cast<std::size_t>((length - 1) / 32)] >> ((length - 1) % 32)) & 1U) == 0) {
    --length;
  }
  if (length == 0) return 0.0;
  const int position = length - 64;  // the leading 64 bits, then whether anything is below them
  std::uint64_t leading = bits_at(words, position);
  for (int at = 0; at < position; ++at) {
    if (((words[static_cast<std::size_t>(at / 32)] >> (at % 32)) & 1U) != 0) {
      leading |= 1;
      break;
    }
  }
  // The conversion rounds 64 bits to nearest even; a sticky bit for all lower bits breaks ties.
  const double magnitude = std::ldexp(static_cast<double>(leading), position - kFractionBits);
  return negative ? -magnitude : magnitude;
}

}  // namespace zero
