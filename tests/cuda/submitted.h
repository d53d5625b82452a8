// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tests/cuda/emulator/emulator.h"

namespace zero::testing {

/// Calls of the CUDA runtime, as the tables of docs/gpu.md count them.
struct Submitted {
  std::int64_t calls = 0;     ///< all
  std::int64_t launches = 0;  ///< of kernels, fills, copies and products
  std::int64_t graphs = 0;    ///< launches of graphs

  static Submitted so_far() {
    using cuda::emulated::calls;
    return {calls(),
            calls("cudaLaunchKernel") + calls("cudaMemsetAsync") + calls("cudaMemcpyAsync") +
                calls("library"),
            calls("cudaGraphLaunch")};
  }
};

/// Those of the last of `times` calls of body().
template <typename Body>
Submitted submitted_by_last(int times, const Body& body) {
  Submitted before;
  for (int i = 0; i < times; ++i) {
    before = Submitted::so_far();
    body();
  }
  const Submitted after = Submitted::so_far();
  return {after.calls - before.calls, after.launches - before.launches,
          after.graphs - before.graphs};
}

}  // namespace zero::testing
