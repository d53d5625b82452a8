// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "collectives/communicator.h"
#include "collectives/host_plan.h"

namespace zero {

// The upper part of the tree over ranks, from the sums of its sub-trees to the root (plan.folds()):
// the result has the bits of the whole tree. `subtrees` has one view per sub-tree, all of the
// destination's count; the destination may be one of them. Synchronous, on the host.

/// The last part of a reduce_scatter: a sub-tree of one rank gives values in that rank's dtype,
/// larger ones give fp32 sums.
void fold(const HostPlan& plan, std::span<const View> subtrees, const ReduceEpilogue& epilogue);

/// Like cpu::combine(), for values of one dtype.
void fold(const HostPlan& plan, ReduceOp op, std::span<const View> subtrees, View destination);

}  // namespace zero
