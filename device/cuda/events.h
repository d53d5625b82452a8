// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "device/cuda/handles.h"

namespace zero::cuda {

/// A pool of CUDA events, so that no event is created on the hot path after the first step. Events
/// may be returned from any thread.
class EventPool {
 public:
  /// `flags`: of cudaEventCreateWithFlags. `ready` events are created immediately, on the calling
  /// thread's device, others on demand.
  EventPool(unsigned flags, int ready);

  EventHandle take();
  void give_back(EventHandle event) noexcept;

 private:
  unsigned flags_;
  std::mutex mutex_;
  std::vector<EventHandle> idle_;
};

}  // namespace zero::cuda
