// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <emulated_cuda.h>

namespace zero::cuda::emulated {

/// Runs every thread of every block on the calling host thread. Blocks with an even index start
/// their threads from the first, the others from the last, so that a missing barrier shows. Throws
/// zero::Error, with kernel, block and source lines, where threads of a block or a warp do not come
/// to the same barrier or shuffle.
void run_grid(const Shape& shape, const std::function<void()>& thread);

}  // namespace zero::cuda::emulated
