// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace zero {

/// Readies this process for stack_of(): chooses a real-time signal that nobody handles, and loads
/// what names callers, which a signal handler may not; the calling thread, and those that it makes
/// later, no longer block that signal. Any thread, any number of calls. Returns whether there is
/// such a signal.
bool prepare_stacks();

/// The stack of the thread of this process whose gettid() this is, a line a function, the innermost
/// first. Nothing if the thread does not answer within `patience`: it has ended, or is blocked in
/// the kernel. Nothing either if an answer has begun and takes longer; then later calls give
/// nothing until it is there. Interrupts the thread by a signal, whose handler stores addresses and
/// nothing else; the kernel restarts system calls where it can. Call from another thread, after
/// prepare_stacks().
std::optional<std::string> stack_of(pid_t thread, std::chrono::milliseconds patience);

/// Threads of this process whose stacks are of interest. Any thread may use it.
class NamedThreads {
 public:
  /// On a CPU the host's thread may be the compute stream's: one stack, with both names.
  void add(std::string name, pid_t thread);
  /// Takes the stacks, each below the thread's name.
  std::string stacks() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<std::string, pid_t>> threads_{};
};

}  // namespace zero
