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

/// Places begin at multiples of this many bytes: suits vector loads and page colouring.
inline constexpr std::int64_t kPlaceAlignment = 256;

/// Steps `first` to `last`, both included.
struct LifeSpan {
  int first = 0;
  int last = 0;
  friend bool operator==(const LifeSpan&, const LifeSpan&) = default;
};
/// Bytes that hold values during `spans`: at least one, in ascending order, apart from each other.
struct Lifetime {
  std::int64_t bytes = 0;
  std::vector<LifeSpan> spans{};
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
    std::int64_t offset = 0;  ///< bytes into the block, a multiple of the alignment
    std::int64_t bytes = 0;
    std::vector<LifeSpan> spans{};  ///< the steps at which it lives
    bool alive_at(int step) const;
  };
  /// The first step with the most bytes alive.
  struct Peak {
    std::int64_t bytes = 0;
    int step = 0;
    std::vector<Place> alive;  ///< largest first
  };

  /// `alignment`: of offsets, in bytes.
  explicit LifetimePlan(std::int64_t alignment = kPlaceAlignment) : alignment_(alignment) {}

  /// Throws zero::Error if `name` is taken, `bytes` < 1 or `last` < `first`.
  void add(std::string name, std::int64_t bytes, int first, int last);
  /// One place that holds values several times: nothing between `spans`, which Lifetime describes.
  /// Throws zero::Error as above, and if the spans are none or out of order.
  void add(std::string name, std::int64_t bytes, std::vector<LifeSpan> spans);
  /// Chooses the offsets of all tensors anew: by first fit, largest first; unless that reaches
  /// lower_bound(), also longest first, and so again with the tensor at the end placed first, a few
  /// times. The fewest bytes found are taken.
  void place();

  /// In the order of add().
  const std::vector<Place>& places() const { return places_; }
  /// Throws zero::Error if there is no such tensor or, as total() does, if one was added after the
  /// last place().
  const Place& at(std::string_view name) const;
  /// Bytes of the block.
  std::int64_t total() const;
  /// The largest sum of bytes alive at a step: no placement takes less.
  std::int64_t lower_bound() const;
  /// The sum of all bytes: what a buffer for each tensor takes.
  std::int64_t without_reuse() const { return sum_; }
  Peak peak() const;
  /// The largest sum of bytes alive at a step from `first` to `last`.
  std::int64_t most_alive(int first, int last) const;

 private:
  void check_placed() const;

  std::int64_t alignment_;
  std::vector<Place> places_;
  std::map<std::string, std::size_t, std::less<>> numbers_;  // into places_
  std::int64_t sum_ = 0;
  std::int64_t total_ = 0;
  bool placed_ = true;
};

}  // namespace zero
