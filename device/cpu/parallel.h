// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace zero::cpu {

/// Calls body(begin, end) for consecutive ranges that cover [0, count), on up to `threads` threads;
/// all ranges but the last are multiples of `grain`. With threads == 1, or count <= grain, makes
/// one plain call on the caller. No other file of the library uses OpenMP. A body that throws ends
/// the call with its error.
void parallel_for(int threads, std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace zero::cpu
