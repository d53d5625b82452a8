// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "device/device.h"

namespace zero::test {

/// A device as a GPU is one to its host: its memory counts as apart, submit() calls the work at
/// once, and what kernels and copies put into the queue runs on a thread of the stream's own.
/// Queues stand still for a moment now and then, by `seed`, so that a wait that is left out shows.
std::unique_ptr<Device> open_queue_device(unsigned seed);

}  // namespace zero::test
