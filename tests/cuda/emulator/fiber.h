// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace zero::cuda::emulated {

/// A stack of its own to run on, resumed and left by hand on one host thread at a time. Leaving and
/// resuming cost some ten instructions, which is why this is not ucontext (a system call each).
class Fiber {
 public:
  using Entry = void (*)();

  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  /// The next resume() begins `entry`, which must not return. Whatever ran here is forgotten; its
  /// destructors do not run.
  void restart(Entry entry);
  /// Runs the fiber on the calling thread until it calls leave().
  void resume();
  /// Goes back to where this fiber was resumed. Called on the fiber.
  void leave();

 private:
  static void begin();

  std::byte* stack_;
  std::size_t shift_;       // of the first frame
  void* own_ = nullptr;     // stack pointer of the fiber while it does not run
  void* caller_ = nullptr;  // of whoever resumed it
  Entry entry_ = nullptr;
  void* fake_stack_ = nullptr;         // AddressSanitizer's
  void* caller_fake_stack_ = nullptr;  // AddressSanitizer's
  const void* caller_bottom_ = nullptr;
  std::size_t caller_size_ = 0;
  void* thread_ = nullptr;         // ThreadSanitizer's
  void* caller_thread_ = nullptr;  // ThreadSanitizer's
};

}  // namespace zero::cuda::emulated
