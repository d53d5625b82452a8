// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace zero {

/// Elements whose squares are summed in fp64 before they enter an ExactSum; parameters start and
/// shards end at multiples of it.
inline constexpr std::int64_t kNormBlock = 64;

/// A sum of finite doubles as a wide fixed-point integer, so that the order and grouping of
/// additions cannot change a bit (after Kulisch's long accumulator; cf. Demmel & Nguyen, "Parallel
/// Reproducible Summation", 2015). Each limb holds 32 bits of the number in an int64, so 2^30
/// additions, or a sum of the limbs over many ranks, cannot overflow.
///
/// Covers magnitudes 2^-512 .. 2^511 to the last bit of every addend above 2^-460; smaller addends
/// lose only bits below 2^-512, by truncation of each addend toward zero, which is
/// order-independent too. Non-finite or larger values raise nonfinite().
class ExactSum {
 public:
  static constexpr int kLimbs =
      34;  // 32 of fixed point, one of head room, one that counts non-finite addends

  void add(double value);
  void add(const ExactSum& other);
  void clear() { limbs_.fill(0); }
  /// Non-finite addends so far.
  std::int64_t nonfinite() const { return limbs_[kLimbs - 1]; }
  /// The sum, rounded to double; NaN if any addend was not finite.
  double value() const;

  /// The limbs, for an all-reduce (integer sum) over ranks.
  std::span<std::int64_t, kLimbs> limbs() { return limbs_; }
  std::span<const std::int64_t, kLimbs> limbs() const { return limbs_; }

 private:
  std::array<std::int64_t, kLimbs> limbs_{};
};

}  // namespace zero
