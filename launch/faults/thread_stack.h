// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

namespace zero {

/// Readies this process for stack_of(): chooses a real-time signal that nobody handles, and loads
/// what names callers, which a signal handler may not; the calling thread, and those that it makes
/// later, no longer block that signal. Any thread, any number of calls. Returns whether there is
/// such a signal.
bool prepare_stacks();

/// The number of the calling thread, as stack_of() takes it.
pid_t thread_number();

/// The callers of what thread `thread` of this process does, a line each, innermost first; nothing
/// if it does not answer within `patience`: it has ended, or is blocked in the kernel; or if its
/// answer takes longer still, and from then on until that is there. Interrupts the thread by a
/// signal, whose handler stores addresses and nothing else; system calls that can be restarted are.
/// Call from another thread, after prepare_stacks().
std::optional<std::string> stack_of(pid_t thread, std::chrono::milliseconds patience);

}  // namespace zero
