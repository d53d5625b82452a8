// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator.h"

namespace zero {

// Collectives on values in host memory, which ranks agree on beside training: a device's
// collectives take its own memory only. They run on the communication stream of `device` and block
// the host. A device in host memory works on the values themselves; through one whose memory is
// apart they pass in parts, by a buffer (other) that is gone on return.

/// As Communicator::all_reduce.
void host_all_reduce(Communicator& communicator, Device& device, View values, ReduceOp op,
                     const Tag& tag);
/// As Communicator::all_gather in place: slice rank() of `values` is this rank's.
void host_all_gather(Communicator& communicator, Device& device, const Slices& values,
                     const Tag& tag);
/// As Communicator::broadcast.
void host_broadcast(Communicator& communicator, Device& device, View values, int root,
                    const Tag& tag);
/// Charges `device`, of a plan, with what one of them takes.
void plan_host_values(Device& device);

}  // namespace zero
