// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// Bytes that live from step `first` to step `last`, both included.
struct Lifetime {
  std::int64_t bytes = 0;
  int first = 0;
  int last = 0;
};
/// A place for each lifetime in one block of memory: no two that live at the same step overlap.
struct LifetimePlaces {
  std::vector<std::int64_t> offsets;  ///< multiples of 256 bytes, in the order of the lifetimes
  std::int64_t total = 0;             ///< end of the last place
};
/// First fit, largest first: a pure function, linear in memory, quadratic in time.
LifetimePlaces place_lifetimes(const std::vector<Lifetime>& lifetimes);

/// Plans one block of memory for tensors that are not all alive at once: add() them, place(), then
/// allocate total() bytes and cut tensors from it at their offsets. A step is any point of a loop
/// body, numbered in its order: a layer's forward, its backward.
class LifetimePlan {
 public:
  struct Place {
    std::string name;
    std::int64_t offset = 0;  ///< bytes into the block, a multiple of 256
    std::int64_t bytes = 0;
    int first = 0;
    int last = 0;
  };

  /// Throws zero::Error if `name` is taken, `bytes` < 1 or `last` < `first`.
  void add(std::string name, std::int64_t bytes, int first, int last);
  /// Chooses the offsets of all tensors added. Those of tensors added later need place() again.
  void place();

  /// In the order of add().
  const std::vector<Place>& places() const { return places_; }
  /// Throws zero::Error if there is no such tensor. Like total(), throws before place().
  const Place& at(std::string_view name) const;
  /// Bytes of the block.
  std::int64_t total() const;
  /// The largest sum of bytes alive at a step: no placement takes less.
  std::int64_t lower_bound() const;
  /// The sum of all bytes: what separate buffers take.
  std::int64_t without_reuse() const;
  /// Names alive at a step with lower_bound() bytes, the first of such steps, largest first.
  std::vector<std::string> alive_at_peak() const;

 private:
  int peak_step() const;
  std::int64_t alive_at(int step) const;

  std::vector<Place> places_;
  std::int64_t total_ = 0;
  bool placed_ = true;
};

}  // namespace zero
