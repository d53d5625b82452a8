// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "collectives/communicator.h"
#include "collectives/host_plan.h"

namespace zero {

// What is left of the tree over ranks where its sub-trees are summed: plan.folds(), with the bits
// of the whole tree. One view per sub-tree, all of the destination's count, which may be the same
// memory as one of them. On the host, at once.

/// As the last part of a reduce_scatter: the values of a sub-tree of one rank are in its own dtype,
/// sums in fp32.
void fold(const HostPlan& plan, std::span<const View> subtrees, const ReduceEpilogue& epilogue);

/// As cpu::combine(), of values of one dtype.
void fold(const HostPlan& plan, ReduceOp op, std::span<const View> subtrees, View destination);

}  // namespace zero
