// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace zero::nccl {

/// Method of reductions: `exact` sums by the tree over ranks in fp32; `fast` uses NCCL's
/// reductions, in the slices' dtype.
enum class Sums { exact, fast };

/// Whether each rank has a GPU of its own. Ranks that share one communicate as if on several hosts;
/// for tests on few GPUs.
enum class Gpus { own, shared };

struct Options {
  Sums sums = Sums::exact;
  Gpus gpus = Gpus::own;
  std::chrono::milliseconds timeout{60'000};  ///< until all ranks have met
  /// From a failure until the rank has ended its communicators; then the process ends (Session).
  std::chrono::milliseconds ending{60'000};
};

}  // namespace zero::nccl
