// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "checkpoint/name_map.h"
#include "engine/engine.h"

namespace zero {

/// `tensors` as files have them: one that `names` splits is replaced by its pieces, whose parts are
/// views into the parts of the whole. Throws zero::Error if the rows of the pieces are not those
/// of the tensor.
std::vector<LogicalTensor> split_tensors(std::span<const LogicalTensor> tensors,
                                         const NameMap& names);

}  // namespace zero
