// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "architecture/name_map.h"
#include "partition/logical_tensor.h"

namespace zero {

/// `tensors` as files hold them: pieces, which follow each other in the elements of the whole,
/// replace each tensor that `names` splits. Throws zero::Error if the pieces and the tensor differ
/// in the number of rows.
std::vector<LogicalTensor> split_tensors(std::span<const LogicalTensor> tensors,
                                         const NameMap& names);

}  // namespace zero
