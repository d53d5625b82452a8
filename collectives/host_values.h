// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"

namespace zero {

// Collectives on values in host memory, such as those that ranks agree on beside training: a
// device's collectives take that device's memory only. They run on the communication stream of
// `device` and block the host. A device in host memory works on the values in place; for a device
// with memory of its own, they pass in parts through a temporary device buffer (class other).

/// Like Communicator::all_reduce.
void host_all_reduce(Communicator& communicator, Device& device, View values, ReduceOp op,
                     const Tag& tag);
/// Like Communicator::all_gather in place: slice rank() of `values` is this rank's.
void host_all_gather(Communicator& communicator, Device& device, const Slices& values,
                     const Tag& tag);
/// Like Communicator::broadcast.
void host_broadcast(Communicator& communicator, Device& device, View values, int root,
                    const Tag& tag);
/// The strings of all ranks, in rank order; any lengths.
std::vector<std::string> all_gather_texts(Communicator& communicator, Device& device,
                                          std::string_view mine, std::string_view purpose);
/// Charges `device`, a planning device, with the buffer that one of these calls takes.
void plan_host_values(Device& device);

}  // namespace zero
