// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "collectives/slices.h"

namespace zero {

/// Elements of workspace that reduce_scatter of `backend` ("local", "host", "mpi", "nccl" or "nccl
/// fast") needs for `full`: none where ranks read each other's memory, a receive slice per peer
/// where slices travel. The same on every rank, so one plan holds for all. Throws zero::Error on
/// another name.
std::int64_t reduce_scatter_workspace(std::string_view backend, const Slices& full);

}  // namespace zero
