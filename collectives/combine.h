// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "collectives/communicator.h"

namespace zero {

/// destination = inputs[0] op inputs[1] op ..., elementwise by the fixed binary tree; fp32, fp64,
/// i32 or i64, all views of one dtype and count. Integer sums wrap; a NaN among the inputs makes a
/// maximum or minimum NaN. `destination` may be the same memory as one of the inputs. On the host,
/// at once.
void combine(ReduceOp op, std::span<const View> inputs, View destination);

/// to = from, unless they are the same memory. As many bytes each. On the host, at once.
void copy(View from, View to);

}  // namespace zero
