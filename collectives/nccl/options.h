// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace zero::nccl {

/// What the ranks sum: `exact` the tree over ranks in fp32; `fast` what the library makes of it, in
/// the slices' dtype.
enum class Sums { exact, fast };

/// Whether each rank has a GPU of its own. Ranks that share one talk as if they were on several
/// hosts: for tests on few GPUs.
enum class Gpus { own, shared };

struct Options {
  Sums sums = Sums::exact;
  Gpus gpus = Gpus::own;
  std::chrono::milliseconds timeout{60'000};  ///< until all ranks have met
};

}  // namespace zero::nccl
