// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace zero {

/// What a fault may do to its process; tests give their own. Called on the rank's host thread.
struct FaultActions {
  using Clock = std::chrono::steady_clock;

  std::function<void(int)> signal;    ///< to this process; SIGSEGV to the calling thread
  std::function<void()> loop;         ///< uses a core, and does not return
  std::function<int()> cut;           ///< shuts all TCP connections down; returns how many
  std::function<void()> fill_memory;  ///< takes memory until the process is killed
  std::function<void(double)> sleep;  ///< seconds
  std::function<Clock::time_point()> now;
  std::function<void(const std::string&)> say;  ///< a line for people
};

/// The real ones; lines go to standard error.
FaultActions process_actions();

/// Shuts down, in both directions, every connected TCP socket that this process has, its peers on
/// this host too. Returns how many.
int cut_tcp_connections();

/// Whether a control group limits this process's memory to less than the machine has: then the
/// system kills a process of the group for taking too much, and no other one. Tests set `root`, a
/// prefix of /proc and /sys.
bool memory_is_limited(const std::string& root = "");

}  // namespace zero
