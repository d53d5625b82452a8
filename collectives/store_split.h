// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "collectives/store.h"

namespace zero {

/// This rank's part of a split.
struct StoreSplit {
  std::vector<int> members{};  ///< ranks of the group that was split, in their new order
  int rank = -1;               ///< the new one; -1: in no part
};

/// The ranks that give the same color, ordered by (key, rank), as Communicator::split wants them.
/// Collective; `name` is used once.
StoreSplit split(const StoreSeat& seat, std::string_view name, int color, int key);

}  // namespace zero
