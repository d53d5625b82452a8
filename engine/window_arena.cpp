// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/window_arena.h"

#include "base/error.h"

namespace zero {

WindowArena::WindowArena(const Schedule& schedule, View memory, const Waits& waits, View gradients)
    : schedule_(schedule),
      memory_(memory),
      gradients_(gradients),
      waits_(waits),
      guards_(schedule.windows.size()) {
  ZERO_CHECK(memory.bytes() + gradients.bytes() >= schedule.arena_bytes,
             "window arena has {} bytes, the schedule needs {}", memory.bytes() + gradients.bytes(),
             schedule.arena_bytes);
}

View WindowArena::view(int window, DType dtype, std::int64_t count) const {
  const Window& w = schedule_.window(window);
  const bool gradient = w.kind == Window::Kind::gradients;
  const View& memory = gradient ? gradients_ : memory_;
  const std::int64_t begin = w.offset - (gradient ? schedule_.gradients_begin : 0);
  const std::int64_t size = size_of(memory.dtype());
  return memory.slice(begin / size, w.bytes / size).reinterpret(dtype, count);
}

void WindowArena::before_gather(int window, Stream& communication) const {
  waits_.wait(communication, guards_[index(window)].released, WaitSite::release_before_gather);
  for (const int other : schedule_.window(window).conflicts) {
    waits_.wait(communication, guards_[index(other)].released, WaitSite::release_before_gather);
  }
}

void WindowArena::before_write(int window, Stream& compute) const {
  waits_.wait(compute, guards_[index(window)].reduced, WaitSite::reduce_before_rewrite);
  for (const int other : schedule_.window(window).conflicts) {
    waits_.wait(compute, guards_[index(other)].reduced, WaitSite::reduce_before_rewrite);
  }
}

}  // namespace zero
