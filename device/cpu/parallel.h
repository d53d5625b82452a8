// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace zero::cpu {

/// Calls body(begin, end) for consecutive ranges that cover [0, count), on up to `threads` threads;
/// all ranges but the last are multiples of `grain`. With threads == 1, or count <= grain, makes
/// one plain call on the caller. Waits for ranges that a thread has begun, never for a thread that
/// the system delays before (Team). A body that throws ends the call with its error.
void parallel_for(int threads, std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body);

/// Calls body(thread, begin, end) until [0, count) is covered, on up to `threads` threads at a
/// time, each with a number of its own. A thread takes its even share from front to back, at most
/// `part` at a time, so that it reads memory in one direction; then it takes half of another
/// thread's rest, so that none waits for a thread that the system delays. If a body throws, its
/// thread ends; the others may do the whole rest; then the call throws that error.
void parallel_shares(
    int threads, std::int64_t count, std::int64_t part,
    const std::function<void(std::int64_t thread, std::int64_t begin, std::int64_t end)>& body);

}  // namespace zero::cpu
