// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/events.h"

#include <utility>

#include "device/cuda/check.h"

namespace zero::cuda {
namespace {

EventHandle make_event(unsigned flags) {
  EventHandle event;
  check(cudaEventCreateWithFlags(event.put(), flags), "make an event");
  return event;
}

}  // namespace

EventPool::EventPool(unsigned flags, int ready) : flags_(flags) {
  idle_.reserve(1024);  // give_back() must not fail
  for (int i = 0; i < ready; ++i) idle_.push_back(make_event(flags_));
}

EventHandle EventPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      EventHandle event = std::move(idle_.back());
      idle_.pop_back();
      return event;
    }
  }
  return make_event(flags_);
}

void EventPool::give_back(EventHandle event) noexcept {
  const std::lock_guard lock(mutex_);
  if (idle_.size() < idle_.capacity()) idle_.push_back(std::move(event));
}

}  // namespace zero::cuda
