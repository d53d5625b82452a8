// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace zero {

/// How the layers of a tensor group work together. No bit depends on `overlap`, nor, without
/// sequence parallelism, on `chunks`; the other options, like the tensor degree, change the order
/// of some sums.
struct TensorOptions {
  /// Cuts the residual stream, norms and outputs of row-parallel layers by rows over the group.
  bool sequence_parallel = false;
  /// The most chunks of rows; one is computed while another is summed over the group.
  int chunks = 2;
  /// false: every collective is waited for immediately.
  bool overlap = true;
};

}  // namespace zero
