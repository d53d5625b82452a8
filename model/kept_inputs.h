// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "device/device.h"
#include "model/recompute.h"
#include "model/unit_listener.h"
#include "tiers/tier_host.h"

namespace zero {

/// The windows through which a decoder's kept inputs pass on their way to host memory and back, and
/// which block's input is where: input k, in the order of the blocks that keep theirs alone, lies
/// in window k % kMost. As many as there are windows stay in them over the head; so none pass if
/// there are no more.
class InputWindows {
 public:
  static constexpr std::int64_t kMost = 2;

  /// `plan`: of a device (RecomputePlan::on).
  InputWindows(const RecomputePlan& plan, std::int64_t layers) {
    numbers_.assign(static_cast<std::size_t>(layers), kNone);
    if (!plan.inputs_on_host) return;
    for (std::int64_t i = 0; i < layers; ++i) {
      if (plan.keeps_input_alone(i)) numbers_[static_cast<std::size_t>(i)] = count_++;
    }
    if (count_ > kMost) return;
    std::ranges::fill(numbers_, kNone);
    count_ = 0;
  }

  /// Inputs that pass through windows.
  std::int64_t count() const { return count_; }
  std::int64_t windows() const { return std::min(count_, kMost); }
  /// Those that go to host memory: all but the last.
  std::int64_t on_host() const { return count_ - windows(); }
  /// Whether block i's input is one of them.
  bool has(std::int64_t i) const { return number(i) != kNone; }
  /// Its number among them.
  std::int64_t number(std::int64_t i) const { return numbers_.at(static_cast<std::size_t>(i)); }
  std::int64_t window(std::int64_t i) const { return number(i) % kMost; }

 private:
  static constexpr std::int64_t kNone = -1;

  std::vector<std::int64_t> numbers_;  // of each block
  std::int64_t count_ = 0;
};

/// Brings a decoder's kept inputs from their windows to pinned host memory behind the forward of
/// their blocks, and back ahead of their backward: work of the transfer stream, which events order
/// against compute; none of it is part of a captured pass. A micro-batch: for each block in order
/// before_write() and, if it is trained, leave(); then in reverse before_use() and used(). Used by
/// the model's host thread. Destruction waits for the copies.
class KeptInputs {
 public:
  /// `device` and `windows` must outlive this. `waits` counts compute's waits for copies.
  KeptInputs(Device& device, const InputWindows& windows, WaitMeter waits = {})
      : device_(device), windows_(windows), waits_(std::move(waits)) {}

  /// Host memory for the inputs, each of `count` elements, charged to the activations.
  void allocate(std::int64_t count, DType dtype);
  /// Tells `listener`, which must outlive this, of each copy. Null: none.
  void listen(UnitListener* listener) { listener_ = listener; }

  /// Later work of compute may write block i's window, if it has one: what left it has left.
  void before_write(std::int64_t i);
  /// Behind the compute submitted so far `window`, block i's, goes to the host, unless the input
  /// stays there until backward. The block has a window.
  void leave(std::int64_t i, const View& window);
  /// Later work of compute may read the input of block i in its window, if it has one.
  void before_use(std::int64_t i);
  /// Behind the compute submitted so far, the last that uses block i's `window`, which it has:
  /// the input that backward needs there next comes into it.
  void used(std::int64_t i, const View& window);

 private:
  View home(std::int64_t number) const { return all_.slice(number * count_, count_); }
  Event& moved(std::int64_t i) { return moved_[static_cast<std::size_t>(windows_.window(i))]; }

  Device& device_;
  const InputWindows& windows_;
  WaitMeter waits_;
  UnitListener* listener_ = nullptr;
  std::optional<TierHost> host_;
  View all_;  // of host_
  std::int64_t count_ = 0;
  std::array<Event, InputWindows::kMost> moved_;  // the last copy from or to each window
};

}  // namespace zero
