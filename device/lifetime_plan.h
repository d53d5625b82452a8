// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// Every place begins at a multiple of this many bytes: suits vector loads and page colouring.
inline constexpr std::int64_t kPlaceAlignment = 256;

/// Bytes that live from step `first` to step `last`, both included.
struct Lifetime {
  std::int64_t bytes = 0;
  int first = 0;
  int last = 0;
};
/// A place for each lifetime in one block of memory: no two that live at the same step overlap.
struct LifetimePlaces {
  std::vector<std::int64_t> offsets{};  ///< multiples of kPlaceAlignment, in the lifetimes' order
  std::int64_t total = 0;               ///< end of the last place
};
/// First fit, largest first. A pure function; its time grows with the square of the number.
LifetimePlaces place_lifetimes(const std::vector<Lifetime>& lifetimes);

/// Plans one block of memory for tensors that are not all alive at once: add() them, place(), then
/// allocate total() bytes and cut each tensor from them at its offset. A step is a point of a loop
/// body, numbered in its order: a layer's forward, its backward.
class LifetimePlan {
 public:
  struct Place {
    std::string name;
    std::int64_t offset = 0;  ///< bytes into the block, a multiple of kPlaceAlignment
    std::int64_t bytes = 0;
    int first = 0;  ///< first and last step at which it lives
    int last = 0;
  };
  /// The first step with the most bytes alive.
  struct Peak {
    std::int64_t bytes = 0;
    int step = 0;
    std::vector<Place> alive;  ///< largest first
  };

  /// Throws zero::Error if `name` is taken, `bytes` < 1 or `last` < `first`.
  void add(std::string name, std::int64_t bytes, int first, int last);
  /// Chooses the offsets of all tensors anew.
  void place();

  /// In the order of add().
  const std::vector<Place>& places() const { return places_; }
  /// Throws zero::Error if there is no such tensor or, as total() does, if one was added after the
  /// last place().
  const Place& at(std::string_view name) const;
  /// Bytes of the block.
  std::int64_t total() const;
  /// The largest sum of bytes alive at a step: no placement takes less.
  std::int64_t lower_bound() const { return peak().bytes; }
  /// The sum of all bytes: what a buffer for each tensor takes.
  std::int64_t without_reuse() const { return sum_; }
  Peak peak() const;

 private:
  void check_placed() const;

  std::vector<Place> places_;
  std::map<std::string, std::size_t, std::less<>> numbers_;  // into places_
  std::int64_t sum_ = 0;
  std::int64_t total_ = 0;
  bool placed_ = true;
};

}  // namespace zero
