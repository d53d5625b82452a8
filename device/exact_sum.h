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
/// Reproducible Summation", 2015). Each limb holds 32 bits of the number in an int64. Adding a
/// double changes a limb by less than 2^32, and adding an ExactSum carries the bits above 32 into
/// the next limb; so 2^30 doubles between two carries, and sums of the limbs over 2^30 ranks,
/// cannot overflow.
///
/// Magnitudes must be below 2^512. Addends of at least 2^-460 are exact; smaller ones are truncated
/// toward zero to multiples of 2^-512, one by one, which is order-independent too. Larger or
/// non-finite values only raise nonfinite().
class ExactSum {
 public:
  static constexpr int kLimbs =
      34;  // 32 of fixed point, one of head room, one that counts non-finite addends

  void add(double value) { add(std::span(&value, 1)); }
  void add(std::span<const double> values);
  /// Also carries: equal sums have equal limbs if this call was their last.
  void add(const ExactSum& other);
  void clear() { limbs_.fill(0); }
  /// The number of addends that were not finite or at least 2^512 in magnitude.
  std::int64_t nonfinite() const { return limbs_[kLimbs - 1]; }
  /// The sum, rounded to the nearest double (ties to even); NaN if any addend was not finite.
  double value() const;

  /// The limbs, for an all-reduce (integer sum) over ranks.
  std::span<std::int64_t, kLimbs> limbs() { return limbs_; }
  std::span<const std::int64_t, kLimbs> limbs() const { return limbs_; }

 private:
  std::array<std::int64_t, kLimbs> limbs_{};
};

}  // namespace zero
