// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

namespace zero::mpi {

/// Gives the ranks, as the group numbers them, from or to which something is still on its way.
using Absent = std::function<std::vector<int>()>;

/// What a rank does now and then while it waits for messages. May throw.
using WhileWaiting = std::function<void(const Absent&)>;

}  // namespace zero::mpi
