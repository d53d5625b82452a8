// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "device/device.h"
#include "engine/schedule.h"
#include "engine/waits.h"

namespace zero {

/// The memory of a schedule's windows and the events that guard it. Before a window's bytes are
/// reused, a gather waits for the compute, and compute for the reduces, of every window that shares
/// bytes with it. (Gathers and reduces share one stream, and so do uses and writes, so these pairs
/// need no event.)
class WindowArena {
 public:
  /// `memory` (bytes) holds the schedule's parameter windows, `gradients` the others: together they
  /// must be at least its arena. All must outlive this.
  WindowArena(const Schedule& schedule, View memory, const Waits& waits, View gradients = {});

  /// `count` elements of the window; throws zero::Error if they do not fit it.
  View view(int window, DType dtype, std::int64_t count) const;
  /// The whole window.
  View view(int window, DType dtype) const {
    return view(window, dtype, schedule_.window(window).bytes / size_of(dtype));
  }

  /// Call before submitting a gather into the window to `communication`.
  void before_gather(int window, Stream& communication) const;
  /// Call after that gather.
  void gathered(int window, Event event) { guards_[index(window)].gathered = std::move(event); }
  const Event& gathered(int window) const { return guards_[index(window)].gathered; }
  /// Call after the last compute that used a parameter window.
  void released(int window, Event event) { guards_[index(window)].released = std::move(event); }
  /// Call before compute first writes a gradient window.
  void before_write(int window, Stream& compute) const;
  /// Call after the reduce that read a gradient window.
  void reduced(int window, Event event) { guards_[index(window)].reduced = std::move(event); }

 private:
  struct Guard {
    Event gathered;
    Event released;
    Event reduced;
  };
  static std::size_t index(int window) { return static_cast<std::size_t>(window); }

  const Schedule& schedule_;
  View memory_;
  View gradients_;
  const Waits& waits_;
  std::vector<Guard> guards_;
};

}  // namespace zero
