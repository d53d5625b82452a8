// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "device/cuda/handles.h"

namespace zero::cuda {

/// CUDA events that are used again and again, so that none is made on the hot path once a step has
/// run. Events may come back from any thread.
class EventPool {
 public:
  /// `flags` as cudaEventCreateWithFlags has them; `ready` events are made at once, on the calling
  /// thread's device, and later ones as they are needed.
  EventPool(unsigned flags, int ready);

  EventHandle take();
  void give_back(EventHandle event) noexcept;

 private:
  unsigned flags_;
  std::mutex mutex_;
  std::vector<EventHandle> idle_;
};

}  // namespace zero::cuda
