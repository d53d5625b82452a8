// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "collectives/communicator.h"
#include "engine/unit.h"

namespace zero {

// Elements that several ranks of the tensor axis hold: parameters without a slice, and ranges that
// several slices have in common (a key/value head).

/// Sets Unit::shared_ranges of `units` from the slices of all ranks. Throws zero::Error unless each
/// index of a sliced dimension is copy 0 on exactly one rank, or if a range that several hold does
/// not begin and end at multiples of `block` local elements on each (8-bit moments; 1: anywhere).
/// Every rank has the same units, sliced or not. Collective over the tensor axis.
void find_shared_ranges(Communicator& tensor, Device& device, std::span<Unit> units,
                        std::int64_t block);

/// The same check of this rank's ranges alone, by TensorSlice::Range::holders: for a plan, which
/// has no other ranks.
void check_own_copies(std::span<const Unit> units, std::int64_t block);

/// Sets Segment::excluded of the unit's trainable segment for the rank at these indices
/// of the shard and the tensor axis: parameters without a slice if `tensor` is not the first, and
/// copies after the first. So the gradient norm counts each element once.
void find_uncounted(Unit& unit, int shard, int tensor);

}  // namespace zero
